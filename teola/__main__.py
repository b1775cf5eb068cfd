"""`python -m teola`: the command line."""

from teola.cli import main

if __name__ == "__main__":
    main()
