"""Run `crowdshot paper` from a source tree: ``python -m crowdshot_paper``."""

from crowdshot_paper.paper_commands import app

if __name__ == "__main__":
    app(prog_name="crowdshot paper")
