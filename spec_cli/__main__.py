"""`python -m spec_cli`."""

from spec_cli.cli import main

if __name__ == "__main__":
    main()
