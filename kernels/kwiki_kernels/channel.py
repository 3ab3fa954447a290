"""The pipe on which a child speaks: lines that begin with its token, or else somebody wrote them."""

from __future__ import annotations

import contextlib
import os
import select
import time

from pydantic import ValidationError

from kwiki_kernels.evaluation import Status
from kwiki_kernels.messages import MESSAGE, Failed, Message


class Channel:
    """Messages from a pipe, without ever blocking on a child that is silent or gone."""

    def __init__(self, fd: int, token: str) -> None:
        os.set_blocking(fd, False)
        self.token = token.encode()
        self.fd = fd
        self.poller = select.poll()
        self.poller.register(fd, select.POLLIN)
        self.rest = b""
        self.closed = False

    def receive(self, timeout_s: float) -> list[Message]:
        """What has arrived by now, or arrives within this time."""
        if self.closed:
            time.sleep(timeout_s)
            return []
        self.poller.poll(1000 * timeout_s)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.fd, 1 << 16):
                self.rest += chunk
            self.closed = True
        *lines, self.rest = self.rest.split(b"\n")
        return [_parse(line, self.token) for line in lines]

    def close(self) -> None:
        """Listen no more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd, self.closed = -1, True


def _parse(line: bytes, token: bytes) -> Message:
    sender, _, message = line.partition(b" ")
    try:
        if sender == token:
            return MESSAGE.validate_json(message)
    except ValidationError:
        pass
    return Failed(status=Status.REJECTED, log="the kernel wrote to the judge's result channel")
