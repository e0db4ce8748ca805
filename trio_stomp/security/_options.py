"""The options of the security floor."""

from attrs import frozen

from trio_stomp.base import option


@frozen
class SecurityOptions:
    """The ways to authenticate."""

    passwd_file: str = option("", "file of users, a line `user:hash` each; empty = none", live=True)
    acl_file: str = option(
        "", "TOML file of rules: who may do what; empty = the built-in ones", live=True
    )
    anonymous: str = option(
        "auto",
        "who may come in without a login; auto = loopback while there are no users, then nobody",
        choices=("auto", "never", "loopback", "always"),
        live=True,
    )
    insecure: bool = option(
        False, "listen beyond loopback though anybody may come in and do everything", live=True
    )
    token_key_file: str = option(
        "",
        "PEM public key, or secret of 32 bytes at least, that bearer tokens (JWT) are signed by",
        live=True,
    )
    token_jwks_file: str = option(
        "", "JSON Web Key Set that bearer tokens are signed with", live=True
    )
    token_issuer: str = option("", "issuer that tokens must name; empty = any", live=True)
    token_audience: str = option("", "audience that tokens must name; empty = any", live=True)
    token_user_claim: str = option("sub", "claim of a token that is the user's name", live=True)
    token_roles_claim: str = option(
        "roles", "claim of a token that lists groups of the rules", live=True
    )
    token_cookie: str = option(
        "", "cookie of the WebSocket upgrade that may hold the token; empty = none", live=True
    )
    max_token_session_s: float = option(
        86_400.0,
        "a session by token ends after so long, whenever the token does; 0 = with the token",
        minimum=0.0,
        live=True,
    )
    login_threads: int = option(2, "logins that are checked at once", minimum=1)
    max_waiting_logins: int = option(256, "logins that may wait for that", minimum=1, live=True)
