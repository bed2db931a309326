"""``python -m crowdshot``"""

from crowdshot.cli import main

if __name__ == "__main__":
    main()
