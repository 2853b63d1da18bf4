"""`spec-cli` and `python -m spec_cli`."""

import sys


def main() -> None:
    """Run the command line, quietly ended by Ctrl-C even while modules are imported."""
    try:
        from spec_cli.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
