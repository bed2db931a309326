"""``python -m crowdshot``"""

from crowdshot.commands.cli.app import main

if __name__ == "__main__":
    main()
