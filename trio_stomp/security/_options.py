"""The options of the security floor."""

from attrs import frozen

from trio_stomp.base import option


@frozen
class SecurityOptions:
    """The ways to authenticate."""

    passwd_file: str = option(
        "", "file of users, with a line `user:hash` for each; empty = none", live=True
    )
    acl_file: str = option("", "TOML file of access rules; empty = the built-in ones", live=True)
    anonymous: str = option(
        "auto",
        "clients that need no login; auto = those on loopback while there are no users, then none",
        choices=("auto", "never", "loopback", "always"),
        live=True,
    )
    insecure: bool = option(
        False, "listen beyond loopback although anyone may do anything", live=True
    )
    token_key_file: str = option(
        "",
        "file of the key for bearer tokens (JWT): PEM public key, or secret of at least 32 bytes",
        live=True,
    )
    token_jwks_file: str = option(
        "", "file of the keys for bearer tokens, as a JSON Web Key Set", live=True
    )
    token_issuer: str = option("", "required issuer of tokens; empty = any", live=True)
    token_audience: str = option("", "required audience of tokens; empty = any", live=True)
    token_user_claim: str = option("sub", "claim of a token with the user's name", live=True)
    token_roles_claim: str = option("roles", "claim of a token with the user's groups", live=True)
    token_cookie: str = option(
        "", "cookie of the WebSocket upgrade that may contain the token; empty = none", live=True
    )
    max_token_session_s: float = option(
        86_400.0,
        "maximum time of a session by token; 0 = until the token expires",
        minimum=0.0,
        live=True,
    )
    login_threads: int = option(2, "number of logins checked at once", minimum=1)
    max_waiting_logins: int = option(
        256, "number of checks that may wait; equal logins share one", minimum=1, live=True
    )
