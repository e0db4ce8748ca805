"""The options of the store."""

from attrs import frozen

from trio_stomp.base import option


@frozen
class JournalOptions:
    """Sizes of the journal."""

    segment_bytes: int = option(
        64 * 1024 * 1024,
        "Size at which a journal file is full and the next one begins.",
        minimum=4096,
        live=True,
    )
    max_store_bytes: int = option(
        0,
        "The journal's maximum size on disk, beyond which messages are refused; 0 = unlimited.",
        minimum=0,
        live=True,
    )


AUTO = "auto"
MEMORY = "memory"
JOURNAL = "journal"
SQL = "sql"


@frozen
class StoreOptions:
    """The location of durable messages: a directory, a database, or memory."""

    data_dir: str = option("", "directory for persistent messages; none = nothing is stored")
    store: str = option(
        AUTO,
        "kind of store; auto = journal with a data directory, sql with a URL, else memory",
        choices=(AUTO, MEMORY, JOURNAL, SQL),
    )
    store_url: str = option(
        "", "database of the sql store, such as sqlite:///queues.db or postgresql+psycopg://..."
    )
    checkpoint_s: float = option(
        0.0,
        "maximum delay before acknowledgements are stored; 0 = none (messages are never delayed)",
        minimum=0,
    )

    def __attrs_post_init__(self) -> None:
        if self.store == JOURNAL and not self.data_dir:
            raise ValueError("store is 'journal', which needs a data_dir")
        if self.store == SQL and not self.store_url:
            raise ValueError("store is 'sql', which needs a store_url")
        if self.store == AUTO and self.data_dir and self.store_url:
            raise ValueError("data_dir and store_url are both given: choose one with store")

    @property
    def kind(self) -> str:
        """Return the configured kind of store: memory, journal or sql."""
        if self.store != AUTO:
            return self.store
        if self.data_dir:
            return JOURNAL
        return SQL if self.store_url else MEMORY
