"""Label Studio is told of each new version, so that its predictions and what it serves next follow the labels."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import NamedTuple

from crowdshot.errors import CrowdshotError
from crowdshot.report.push import label_studio
from crowdshot.report.push.remote import Remote
from crowdshot.service.label_studio import Backend
from crowdshot.wording import shown

EVERY = 5.0  # seconds between two tellings, at least
log = logging.getLogger("crowdshot.service")


class Tool(NamedTuple):
    """Where Label Studio is, and a token of its that is never written anywhere."""

    address: str
    token: str

    @classmethod
    def of(cls, address: str, token_file: Path | None) -> Tool:
        """The token is in the file, or else in the environment."""
        Remote(address, {})  # is it an address?
        name = label_studio.VARIABLE
        try:
            token = os.environ.get(name, "") if token_file is None else token_file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CrowdshotError(f"token_file is {shown(token_file or '')}, expected one to read ({error}).") from None
        if not token.strip() or len(token.split()) != 1 or not token.isascii():
            found = f"the environment has no token in {name}" if token_file is None else "token_file has no token"
            raise CrowdshotError(f"{found}, expected one of Label Studio's for label_studio=.")
        return cls(address, token.strip())

    def tell(self, project: str, version: str) -> None:
        remote = label_studio.connect(self.address, self.token)
        label_studio.retrieve(remote, project)
        label_studio.go_by(remote, project, version)


async def keep_telling(tool: Tool, backend: Backend) -> None:
    """For ever. What it could not be told, the next version brings."""
    live = backend.live
    async for number in live.versions():
        project = live.journal.fact("project")
        if not number or project is None:
            continue
        version = backend.model_version
        try:
            await asyncio.to_thread(tool.tell, project, version)
        except CrowdshotError as error:
            if version == backend.model_version:  # else it was overtaken, and the newer one comes next
                sentence = str(error).partition(" (")[0]  # what follows may quote names
                log.warning("Label Studio could not be told of the new version: %s", sentence)
        await asyncio.sleep(EVERY)
