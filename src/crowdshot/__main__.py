"""Run the command line as ``python -m crowdshot``."""

from crowdshot._cli.main import main

if __name__ == "__main__":
    main()
