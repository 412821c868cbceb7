"""`python -m controlplane` is `trimtab`."""

from controlplane.cli.main import main

main()
