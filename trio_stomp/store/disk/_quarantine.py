"""Quarantine of damaged bytes, for later inspection."""

from contextlib import suppress

from attrs import define, field

from trio_stomp.store.disk._files import Files

MAX_COPY_BYTES = 16 * 1024 * 1024
"""Maximum size of one copy."""
MAX_COPIES = 1000
"""Maximum number of copies; further damage is reported only."""


@define(eq=False)
class Quarantine:
    """Copies damaged bytes to a directory, once each, and describes them.

    Args:
      found: Number of damaged parts found, including repeated ones.
    """

    _directory: str
    _files: Files
    found: int = 0
    _names: set[str] = field(factory=set)

    def set_aside(self, handle: int, path: str, offset: int, size: int, what: str) -> str:
        """Copy damaged bytes of a file if possible, and return a line that describes them.

        Args:
          handle: The open file.
          path: Its path.
          offset: Position of the damaged bytes.
          size: Their number.
          what: Kind of damage, for the line.
        """
        self.found += 1
        return self.keep(handle, path, offset, size, what)

    def keep(self, handle: int, path: str, offset: int, size: int, what: str) -> str:
        """Copy bytes as ``set_aside`` does, without counting them as damage."""
        line = f"{path}: {what}, {size} bytes from {offset} on"
        copy = f"{self._directory}/{path.rpartition('/')[2]}-{offset}"
        with suppress(OSError):
            if self._is_new(copy):
                data = self._files.read(handle, offset, min(size, MAX_COPY_BYTES))
                target = self._files.create(copy)
                try:
                    self._files.write(target, 0, [data])
                finally:
                    self._files.close(target)
            return f"{line}; set aside in {copy}"
        return line

    def _is_new(self, copy: str) -> bool:
        if not self._names:
            self._files.make_directory(self._directory)
            self._names.update(self._files.names(self._directory))
        name = copy.rpartition("/")[2]
        if name in self._names:
            return False
        if len(self._names) >= MAX_COPIES:
            raise OSError("too many copies")
        self._names.add(name)
        return True
