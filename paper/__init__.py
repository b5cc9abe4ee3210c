"""Everything that reproduces the paper and is not part of the installed package. See paper/README.md."""
