"""The credentials of clients, in every place that may have them."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.security import Credentials, from_http, without_secrets
from trio_stomp.security._credentials import chosen, from_stomp, looks_like_token

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl"
SECRETS = ("s3cret", "zw\xf6lf", JWT)


def basic(text: str | bytes, scheme: str = "Basic") -> str:
    raw = text.encode() if isinstance(text, str) else text
    return f"{scheme} {base64.b64encode(raw).decode()}"


def http(
    *headers: tuple[str, str],
    target: str = "/ws",
    ambient: bool = True,
    cookie_name: str = "sid",
    tokens: bool = False,
) -> Credentials | None:
    raw = [(name.encode(), content.encode("latin-1")) for name, content in headers]
    return from_http(raw, target, ambient=ambient, cookie_name=cookie_name, tokens=tokens)


def check_refused(error: ProtocolError, *secrets: str) -> None:
    """It has a stable code, closes the connection in any dialect, and tells no secret."""
    assert error.code == "bad-credentials"
    assert error.reason is CloseReason.AUTHENTICATION_FAILED
    assert not error.is_survivable
    assert not [secret for secret in (*SECRETS, *secrets) if secret and secret in error.message]


# CONNECT


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("login", "ann"), ("passcode", "s3cret")], Credentials("ann", "s3cret")),
        ([("login", "ann")], Credentials("ann")),
        ([("login", "ann"), ("passcode", "")], Credentials("ann", "")),
        ([("passcode", "s3cret")], Credentials("", "s3cret")),
        ([("login", ""), ("passcode", "s3cret")], Credentials("", "s3cret")),
        ([("login", "ann"), ("login", "eve"), ("passcode", "x")], Credentials("ann", "x")),
        ([("Authorization", f"Bearer {JWT}")], Credentials(token=JWT)),
        ([("authorization", f"bearer   {JWT} ")], Credentials(token=JWT)),
        ([("authorization", f"\t Bearer {JWT}\t")], Credentials(token=JWT)),
        ([("AUTHORIZATION", basic("ann:s3:cret"))], Credentials("ann", "s3:cret")),
        ([("authorization", basic("zo\xeb:zw\xf6lf", "bAsIc"))], Credentials("zo\xeb", "zw\xf6lf")),
        ([("authorization", basic(":"))], Credentials("", "")),
        # Both: login and passcode win together, and not one without the other.
        (
            [("login", "ann"), ("passcode", "s3cret"), ("authorization", f"Bearer {JWT}")],
            Credentials("ann", "s3cret"),
        ),
        ([("login", "ann"), ("authorization", f"Bearer {JWT}")], Credentials("ann", token=JWT)),
        ([("passcode", "x"), ("authorization", f"Bearer {JWT}")], Credentials(token=JWT)),
        ([("login", "eve"), ("authorization", basic("ann:x"))], Credentials("ann", "x")),
        (
            [("login", ""), ("passcode", ""), ("authorization", f"Bearer {JWT}")],
            Credentials(token=JWT),
        ),
    ],
)
def test_credentials_of_connect(headers: list[tuple[str, str]], expected: Credentials) -> None:
    assert from_stomp(headers) == expected


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("host", "x"), ("accept-version", "1.2")],
        [("login", "")],
        [("login", ""), ("passcode", "")],
        [("Login", "ann"), ("Passcode", "s3cret")],  # STOMP header names are case-sensitive
        [("x-authorization", f"Bearer {JWT}")],
    ],
)
def test_connect_without_credentials(headers: list[tuple[str, str]]) -> None:
    assert from_stomp(headers, tokens=True) is None


def test_a_passcode_that_looks_like_a_token_is_one_where_tokens_are_taken() -> None:
    headers = [("login", "ann"), ("passcode", JWT)]
    assert from_stomp(headers, tokens=True) == Credentials("ann", token=JWT)
    assert from_stomp(headers) == Credentials("ann", JWT)
    assert from_stomp([("passcode", JWT)], tokens=True) == Credentials(token=JWT)
    headers = [("authorization", basic(f":{JWT}")), ("login", "ann")]
    assert from_stomp(headers, tokens=True) == Credentials("ann", token=JWT)
    headers = [("authorization", basic(f"bob:{JWT}")), ("login", "ann")]
    assert from_stomp(headers, tokens=True) == Credentials("bob", token=JWT)


@pytest.mark.parametrize(
    ("passcode", "is_token"),
    [
        (JWT, True),
        ("eyJ.a.b", True),
        ("eyJ.a", False),
        ("eyJ.a.", False),
        ("eyJ..b", False),
        ("eyJ.a.b.c", False),
        ("a.eyJ.b", False),
        (f" {JWT}", False),
        (f"{JWT}\n", False),
        ("eyJ.a.b=", False),
        ("eyJ.\xe4.b", False),
        ("EYJ.a.b", False),
    ],
)
def test_recognition_of_tokens(passcode: str, is_token: bool) -> None:
    assert looks_like_token(passcode) is is_token
    assert from_stomp([("passcode", passcode)], tokens=True) == (
        Credentials(token=passcode) if is_token else Credentials("", passcode)
    )


MALFORMED = [
    "",
    "Bearer",
    "Bearer ",
    "Bearer s3cret s3cret",
    f"Bearer {JWT}, Bearer {JWT}",
    "Bearer s3cret\x00",
    "Bearer zw\xf6lf",
    "Bearer =",
    f"Bearer\t{JWT}",
    JWT,
    f"Token {JWT}",
    'Digest username="ann", response="s3cret"',
    "Negotiate s3cret",
    "Basic",
    "Basic s3cret",
    "Basic !!!!",
    "Basic zw\xf6lf",
    basic("ann"),
    basic("ann:s3cret")[:-1],
    basic("ann:s3cret") + "=",
    basic("ann:s3cret") + ", " + basic("bob:s3cret"),
    basic("ann:zw\xf6lf".encode("latin-1")),
    basic("ann:s3cret\n"),
    basic("an\x00n:s3cret"),
    basic("ann:s3cret\x7f"),
    basic("ann:s3cret\x85"),
]


@pytest.mark.parametrize("written", MALFORMED)
def test_an_authorization_that_cannot_be_read_is_refused_and_not_ignored(written: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        from_stomp([("login", "ann"), ("authorization", written)], tokens=True)
    check_refused(caught.value)
    with pytest.raises(ProtocolError) as caught:
        http(("authorization", written))
    check_refused(caught.value)


def test_one_that_does_not_count_is_not_read() -> None:
    headers = [("login", "ann"), ("passcode", "x"), ("authorization", "Digest s3cret")]
    assert from_stomp(headers) == Credentials("ann", "x")


def test_two_authorizations_are_refused_even_if_alike() -> None:
    pair = [("authorization", f"Bearer {JWT}"), ("Authorization", f"Bearer {JWT}")]
    for headers in (pair, [("login", "ann"), ("passcode", "x"), *pair]):
        with pytest.raises(ProtocolError) as caught:
            from_stomp(headers)
        check_refused(caught.value)
    for ambient in (True, False):
        with pytest.raises(ProtocolError) as caught:
            http(*pair, ambient=ambient)
        check_refused(caught.value)


# The upgrade


@pytest.mark.parametrize("ambient", [True, False])
def test_credentials_not_added_by_browsers_count_on_any_page(ambient: bool) -> None:
    assert http(("Authorization", f"Bearer {JWT}"), ambient=ambient) == Credentials(token=JWT)
    result = http(target=f"/ws?a=b&access_token={JWT}&c", ambient=ambient)
    assert result == Credentials(token=JWT)


def test_credentials_added_by_browsers_count_only_on_our_pages() -> None:
    ours = http(("authorization", basic("ann:s3cret")))
    assert ours == Credentials("ann", "s3cret")
    assert http(("authorization", basic("ann:s3cret")), ambient=False) is None
    assert http(("cookie", f"sid={JWT}")) == Credentials(token=JWT)
    assert http(("cookie", f"sid={JWT}"), ambient=False) is None
    # Nor is it read: whatever a visitor's browser adds must not keep a page's token out.
    headers = (("authorization", "Negotiate s3cret"), ("cookie", 'sid="'))
    assert http(*headers, target="/?access_token=t", ambient=False) == Credentials(token="t")


def test_explicit_credentials_win_over_those_added_by_browsers() -> None:
    added = (("authorization", basic("ann:s3cret")), ("cookie", "sid=cookie"))
    assert http(*added, target="/?access_token=query") == Credentials(token="query")
    assert http(*added) == Credentials("ann", "s3cret")
    result = http(("authorization", "Bearer header"), added[1])
    assert result == Credentials(token="header")


def test_a_basic_passcode_may_be_a_token() -> None:
    headers = (("authorization", basic(f"ann:{JWT}")),)
    assert http(*headers, tokens=True) == Credentials("ann", token=JWT)
    assert http(*headers) == Credentials("ann", JWT)


def test_token_given_in_two_ways_is_refused() -> None:
    # RFC 6750 section 2: clients must not use more than one method.
    with pytest.raises(ProtocolError) as caught:
        http(("authorization", f"Bearer {JWT}"), target=f"/?access_token={JWT}")
    check_refused(caught.value)


@pytest.mark.parametrize(
    ("target", "token"),
    [
        ("/ws?access_token=abc", "abc"),
        ("/ws?access%5Ftoken=a%2Eb", "a.b"),
        ("/ws?access_token=a%2Bb%2F==", "a+b/=="),
        ("http://h:1/ws?x&access_token=abc#y", "abc"),
        ("/ws?", ""),
        ("/ws", ""),
        ("/ws?Access_Token=abc", ""),
        ("/ws?xaccess_token=abc", ""),
        ("/access_token=abc", ""),
        ("/ws#?access_token=abc", ""),
        ("/ws?a=?access_token=abc", ""),
    ],
)
def test_the_token_of_a_query(target: str, token: str) -> None:
    assert http(target=target) == (Credentials(token=token) if token else None)


@pytest.mark.parametrize(
    "query",
    [
        "access_token=", "access_token", "access_token=s3cret&access_token=s3cret",
        "access_token=s3cret&access%5ftoken=other", "access_token=s3+cret",
        "access_token=s3cret%00", "access_token=%FFs3cret", "access_token=s3cret;x",
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_read_is_refused(query: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        http(target=f"/ws?{query}")
    check_refused(caught.value)


@pytest.mark.parametrize(
    ("lines", "token"),
    [
        (["sid=abc"], "abc"),
        (["a=b; sid=abc; c"], "abc"),
        (["a=b;sid = abc "], "abc"),
        (['sid="abc"'], "abc"),
        (["sid=a=="], "a=="),
        (["a=b", "sid=abc"], "abc"),
        (["sid=abc; sid=abc"], "abc"),
        (["sid="], ""),
        (['sid=""'], ""),
        (["sid"], ""),
        (["SID=abc"], ""),
        (["xsid=abc"], ""),
        (["x=sid=abc"], ""),
        (["a=b"], ""),
        (["sid=s3cret; sid=other"], None),
        (["sid=s3cret", "sid=other"], None),
        (["sid=s3cret,x"], None),
        (['sid="'], None),
        (["sid=zw\xf6lf"], None),
    ],
)
def test_the_token_of_a_cookie_or_that_it_is_refused(lines: list[str], token: str | None) -> None:
    headers = [("Cookie", line) for line in lines]
    if token is not None:
        assert http(*headers) == (Credentials(token=token) if token else None)
        return
    with pytest.raises(ProtocolError) as caught:
        http(*headers)
    check_refused(caught.value)


def test_no_cookie_counts_unless_one_is_named() -> None:
    assert http(("cookie", "sid=abc; =def"), cookie_name="") is None


def test_an_upgrade_without_credentials() -> None:
    assert http(("host", "x"), ("x-authorization", "y"), target="/ws?x=y") is None


# Both


@pytest.mark.covers("X15")
def test_credentials_of_connect_replace_those_of_the_upgrade() -> None:
    upgrade = http(("authorization", basic("ann:s3cret")))
    assert chosen(from_stomp([("login", "bob")]), upgrade) == Credentials("bob")
    assert chosen(from_stomp([("login", ""), ("passcode", "")]), upgrade) == upgrade
    assert chosen(from_stomp([("authorization", f"Bearer {JWT}")]), upgrade) == Credentials(
        token=JWT
    )
    assert chosen(None, None) is None


# Logs


def test_a_repr_tells_no_secret() -> None:
    assert repr(Credentials("ann", "s3cret")) == "Credentials(login='ann', passcode=***)"
    assert repr(Credentials(token=JWT)) == "Credentials(login='', token=***)"
    assert repr(Credentials("ann")) == "Credentials(login='ann')"
    assert str(Credentials("ann", "")) == "Credentials(login='ann', passcode=***)"
    assert len(repr(Credentials("a" * 9999))) < 100


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/ws", "/ws"),
        ("/ws?a=b&c#d", "/ws?a=b&c#d"),
        ("/ws?access_token=s3cret", "/ws?access_token=***"),
        ("/ws?a=b&access_token=s3=cret&c=d", "/ws?a=b&access_token=***&c=d"),
        ("/ws?access_token=s3cret&access_token=s3cret", "/ws?access_token=***&access_token=***"),
        ("/ws?Access%5FToken=s3cret", "/ws?Access%5FToken=***"),
        ("/ws?a;access_token=s3cret;b", "/ws?a;access_token=***;b"),
        ("/ws#access_token=s3cret", "/ws#access_token=***"),
        ("/ws?access_token", "/ws?access_token"),
        (f"/ws?id_token={JWT}&a=b", "/ws?***&a=b"),
        (f"/ws/{JWT}", "***"),
        (f"/ws?x=Bearer%20{JWT.replace('.', '%2e')}", "/ws?***"),
        ("https://ann:s3cret@h:1/ws?a", "https://***@h:1/ws?a"),
        ("//ann:s3c@ret@h/ws", "//***@h/ws"),
        ("/ws//ann@h", "/ws//ann@h"),
        ("", ""),
    ],
)
def test_a_target_is_shown_without_secrets(target: str, shown: str) -> None:
    assert without_secrets(target) == shown


def test_a_long_target_is_cut_after_its_secrets_are() -> None:
    shown = without_secrets("/ws?access_token=" + "s3cret" * 1000 + "&" + "a" * 1000)
    assert shown == "/ws?access_token=***&" + "a" * 235 + "…"


def test_a_target_made_to_be_slow_is_not() -> None:
    # Were each start tried to the end, it would take minutes.
    assert without_secrets("/ws?" + "eyJ" * 100_000).startswith("/ws?eyJ")
    assert without_secrets("/ws?" + "&" * 100_000).startswith("/ws?&")


PIECES = st.sampled_from(
    ["/ws", "?", "&", "#", ";", "=", "access_token", "access%5Ftoken", "a", "+", "%26", "%3D", "//"]
)


@given(st.lists(PIECES, max_size=12), st.sampled_from(["s3cret", "s3%63ret"]), st.integers(0, 12))
def test_recognized_token_is_not_shown(pieces: list[str], secret: str, place: int) -> None:
    pieces.insert(place, secret)
    target = "".join(pieces)
    try:
        result = http(target=target)
    except ProtocolError as error:
        check_refused(error)
        return
    if result is not None and "s3cret" in result.token:
        shown = without_secrets(target)
        assert secret not in shown
        assert "access" in shown


@given(st.text(max_size=40), st.text(max_size=40))
def test_basic_carries_any_text_without_controls(login: str, passcode: str) -> None:
    try:
        written = basic(f"{login}:{passcode}")
    except UnicodeEncodeError:
        return
    try:
        result = from_stomp([("authorization", written)])
    except ProtocolError as error:
        check_refused(error)
        assert any(ord(each) < 32 or 127 <= ord(each) < 160 for each in login + passcode)
        return
    first, _, rest = f"{login}:{passcode}".partition(":")
    assert result == Credentials(first, rest)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"authorization", b"Authorization", b"cookie", b"host"]),
            st.binary(max_size=30) | st.sampled_from([b"Basic YTpi", b"Bearer a", b"sid=a"]),
        ),
        max_size=3,
    ),
    st.text(st.characters(codec="ascii"), max_size=30),
    st.booleans(),
)
def test_any_request_is_read_or_refused(
    headers: list[tuple[bytes, bytes]], target: str, ambient: bool
) -> None:
    try:
        result = from_http(headers, target, ambient=ambient, cookie_name="sid", tokens=True)
    except ProtocolError as error:
        check_refused(error)
    else:
        assert result is None or result.passcode is None or not result.token
    without_secrets(target)
