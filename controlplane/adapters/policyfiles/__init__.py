"""Policy, profile and fleet files: YAML in, validated domain values out."""
