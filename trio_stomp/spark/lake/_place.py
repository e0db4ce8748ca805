"""The directory or address below which all files are, on any storage that Arrow knows."""

import contextlib
import os
import secrets
import shutil
from hashlib import sha256
from typing import Self
from urllib.parse import quote

import pyarrow.fs as fs
from attrs import frozen

ROOM_BYTES = 320 << 20
"""A commit (64 MB), and a merged file (256 MB), which is written before its parts are deleted."""

NAME_LENGTH = 180
"""Most characters of a file's name that tells what the file is of."""

FULL = "No space left"
FREE_SOME = "free some, or name another place with --root"


class LakeError(Exception):
    """The tables cannot be read or written. The text is one line with the remedy."""


@frozen
class Place:
    """A root of files: a directory, or a URI such as ``s3://bucket/diag``.

    Credentials and endpoints come from the environment, where the storage's own tools find them.

    Args:
      uri: The root, as delta-rs spells it.
      path: The root within the file system of Arrow.
    """

    uri: str
    files: fs.FileSystem
    path: str

    @classmethod
    def of(cls, root: os.PathLike[str] | str) -> Self:
        """Return a root.

        Raises:
          LakeError: the URI is of no known storage.
        """
        text = os.fspath(root).rstrip("/") or "/"
        if text.startswith("file:"):  # also ``file:/x``, as Hadoop spells it
            text = "/" + text.removeprefix("file:").lstrip("/")
        if "://" not in text:
            path = os.path.abspath(text)
            return cls(path, fs.LocalFileSystem(), path)
        for hadoop, ours in (("s3a://", "s3://"), ("s3n://", "s3://")):
            text = text.replace(hadoop, ours, 1) if text.startswith(hadoop) else text
        try:
            files, path = fs.FileSystem.from_uri(text)
        except (ValueError, OSError) as error:
            raise LakeError(
                f"{text} cannot be opened: {line_of(error)}; give a directory, or s3://bucket/path"
            ) from None
        return cls(text, files, path.rstrip("/"))

    @property
    def is_local(self) -> bool:
        """Whether it is a directory of this machine."""
        return isinstance(self.files, fs.LocalFileSystem)

    def below(self, *parts: str) -> "Place":
        """Return a directory of this one."""
        more = "/".join(parts)
        return Place(f"{self.uri}/{more}", self.files, f"{self.path}/{more}")

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is none."""
        try:
            with self.files.open_input_stream(f"{self.path}/{name}") as file:
                data: bytes = file.read()
                return data
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file, of which readers see the whole or nothing.

        Raises:
          LakeError: the root is not writable.
        """
        path = f"{self.path}/{name}"
        # An object appears as a whole; a file of a directory has to be renamed into place.
        # Nobody can foresee its name, and put a link there.
        part = f"{path}.{secrets.token_hex(8)}.part" if self.is_local else path
        try:
            self.files.create_dir(path.rpartition("/")[0], recursive=True)
            with self.files.open_output_stream(part) as file:
                file.write(data)
            if part != path:
                self.files.move(part, path)
        except OSError as error:
            raise self.unwritable(error) from None

    def names(self, *parts: str) -> list[str]:
        """Return the names in a directory below this one, in order; none if it does not exist."""
        path = "/".join([self.path, *parts])
        found = self.files.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(each.base_name for each in found)

    def check(self) -> None:
        """Check that files can be written.

        Raises:
          LakeError: they cannot.
        """
        self.write("write-test", b"")
        with contextlib.suppress(OSError):
            self.files.delete_file(f"{self.path}/write-test")

    def check_room(self) -> None:
        """Check that a directory's disk has room for what a writer needs at most.

        Raises:
          LakeError: it has less.
        """
        if self.is_local and (free := shutil.disk_usage(self.path).free) < ROOM_BYTES:
            raise LakeError(
                f"{self.uri} has {free >> 20} MiB of free disk, and a writer needs"
                f" {ROOM_BYTES >> 20}: {FREE_SOME}"
            )

    def unwritable(self, error: Exception) -> LakeError:
        """Return the error of an operator who has to see to the storage."""
        if FULL in str(error):
            return LakeError(
                f"{self.uri} is full: {FREE_SOME}. What was not written is written next"
            )
        return LakeError(
            f"{self.uri} is not writable: {line_of(error)}; name another place with --root, or give"
            " this user the right to write there"
        )


def file_name(text: str) -> str:
    """Return a text as a part of a file's name: a long one as its beginning and a digest."""
    name = quote(text, safe="@")
    if len(name) <= NAME_LENGTH:
        return name
    return f"{name[: NAME_LENGTH // 2]}-{sha256(name.encode()).hexdigest()}"


def in_spark(uri: str) -> str:
    """Return a path or URI as Spark spells it."""
    return f"s3a://{uri.removeprefix('s3://')}" if uri.startswith("s3://") else uri


def line_of(error: Exception) -> str:
    """Return the first line of an error's text, or its name."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
