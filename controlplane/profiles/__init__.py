"""Profiles that ship with the product, each with its source and date."""
