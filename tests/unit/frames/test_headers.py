"""Header bytes ↔ text: escapes, padding, encodings, and what an error may quote."""

import pytest
from _oracle.strategies import (
    ALL_RULES,
    VERSIONS,
    chunkings,
    frames,
    frames_of,
    header_texts,
    naive_escape,
)
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.base import FrameError
from trio_stomp.frames import (
    OPENING,
    V1_0,
    V1_1,
    V1_2,
    Frame,
    FrameDecoder,
    FrameLimits,
    FrameRun,
    Head,
    HeadCache,
    HeaderRules,
    Headers,
    encode_frame,
    encode_receipt,
    encode_text,
    excerpt,
    parse_head,
)

by_name = pytest.mark.parametrize("rules", VERSIONS, ids=lambda rules: rules.name)


def decode(data: bytes, rules: HeaderRules) -> list[Frame] | FrameError:
    """All frames of ``data``, or the error: the same for every way to cut it."""
    results: list[list[Frame] | str] = []
    error = None
    for chunks in chunkings(data):
        decoder = FrameDecoder(FrameLimits(), HeadCache(), rules)
        found = frames_of(decoder, chunks)
        error = decoder.error
        results.append(found if error is None else error.code)
    assert all(result == results[0] for result in results)
    return error or found


def headers_of(line: bytes, rules: HeaderRules) -> Headers:
    """Return the headers in one line of a SEND."""
    result = decode(b"SEND\n" + line + b"\n\n\0", rules)
    assert isinstance(result, list), result
    return result[0].headers


def error_of(line: bytes, rules: HeaderRules) -> FrameError:
    result = decode(b"SEND\n" + line + b"\n\n\0", rules)
    assert isinstance(result, FrameError), result
    return result


# (numbers, versions, the line, name and value)
MEANINGS = [
    ("F08", (V1_1, V1_2), "clé:né😀".encode(), ("clé", "né😀")),
    ("F09", (V1_0,), "clé:né😀".encode(), ("clé", "né😀")),
    ("F10", (V1_0,), b"login: \t x y ", ("login", "x y ")),
    ("F10", (V1_0,), b" login:x", (" login", "x")),
    ("F11", (V1_1, V1_2, OPENING), b"foo: bar ", ("foo", " bar ")),
    ("F11", (V1_1, V1_2, OPENING), b" foo :\tbar", (" foo ", "\tbar")),
    ("F12", (V1_0,), b"foo:a:b::", ("foo", "a:b::")),
    ("F13", (V1_1, V1_2), b"selector:JMSCorrelationID='instance:1'",
     ("selector", "JMSCorrelationID='instance:1'")),
    ("F14", ALL_RULES, b"foo:", ("foo", "")),
    ("F17", (V1_1,), b"a\\cb\\nc\\\\d:\\c\\n\\\\", ("a:b\nc\\d", ":\n\\")),
    ("F18", (V1_2,), b"a\\cb\\nc\\\\d\\re:\\c\\n\\\\\\r", ("a:b\nc\\d\re", ":\n\\\r")),
    # One pass from the left: an escaped backslash does not begin another escape.
    ("F17", (V1_1,), b"p:C\\\\new\\\\\\\\\\c", ("p", "C\\new\\\\:")),
    ("F18", (V1_2,), b"p:C\\\\new\\\\\\\\\\c", ("p", "C\\new\\\\:")),
    ("F22", (OPENING,), b"passcode:a\\b:c\\n\\", ("passcode", "a\\b:c\\n\\")),
    ("F23", (V1_0,), b"message-id:a\\c\\n\\t:\\", ("message-id", "a\\c\\n\\t:\\")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "line", "header"),
    [
        pytest.param(rules, line, header, id=f"{rules.name}-{i}", marks=pytest.mark.covers(number))
        for i, (number, versions, line, header) in enumerate(MEANINGS)
        for rules in versions
    ],
)
def test_meaning_of_header_lines(rules: HeaderRules, line: bytes, header: tuple[str, str]) -> None:
    assert headers_of(line, rules) == (header,)


# (numbers, versions, the line, the code)
ERRORS = [
    ("F08", (V1_1, V1_2), b"foo:\xff", "invalid-utf8"),
    ("F08", (V1_1, V1_2), b"f\xe9:x", "invalid-utf8"),
    ("F08", (V1_1, V1_2), b"receipt:\xc3", "invalid-utf8"),
    ("F08", (V1_1, V1_2), b"foo:\xed\xa0\x80", "invalid-utf8"),  # A surrogate.
    ("F09", (V1_0,), b"foo:\xff", "invalid-utf8"),
    ("F15", (V1_1, V1_2, V1_0), b":x", "invalid-header"),
    ("F16", ALL_RULES, b"foo", "invalid-header"),
    ("F16", ALL_RULES, b"a:b\nfoo\nc:d", "invalid-header"),
    ("F19", (V1_1,), b"foo:\\r", "invalid-escape"),
    ("F19", (V1_1,), b"foo:\\t", "invalid-escape"),
    ("F19", (V1_1,), b"f\\xo:", "invalid-escape"),
    ("F19", (V1_1,), b"foo:\\\\\\", "invalid-escape"),
    ("F19", (V1_1,), b"receipt:\\r", "invalid-escape"),
    ("F20", (V1_2,), b"foo:\\t", "invalid-escape"),
    ("F20", (V1_2,), b"foo:\\N", "invalid-escape"),
    ("F20", (V1_2,), b"f\\:o:x", "invalid-escape"),
    ("F20", (V1_2,), b"foo:x\\", "invalid-escape"),
    ("F20", (V1_2,), b"foo:\\\\\\", "invalid-escape"),
    ("F20", (V1_2,), b"foo:x\\\r", "invalid-escape"),
    ("F20", (V1_2,), b"receipt:x\\", "invalid-escape"),
]


@pytest.mark.parametrize(
    ("rules", "line", "code"),
    [
        pytest.param(rules, line, code, id=f"{rules.name}-{i}", marks=pytest.mark.covers(number))
        for i, (number, versions, line, code) in enumerate(ERRORS)
        for rules in versions
    ],
)
def test_a_header_line_that_is_refused(rules: HeaderRules, line: bytes, code: str) -> None:
    error = error_of(line, rules)
    assert error.code == code
    assert error.excerpt.startswith(b"SEND\n" + line[:3])


@pytest.mark.covers("F08")
@by_name
def test_a_command_is_utf_8_too(rules: HeaderRules) -> None:
    error = decode(b"S\xffND\n\n\0", rules)
    assert isinstance(error, FrameError)
    assert error.code == "invalid-utf8"
    assert decode("SÉND\n\n\0".encode(), rules) == [Frame("SÉND", ())]


@pytest.mark.covers("F07")
@by_name
def test_header_names_are_case_sensitive(rules: HeaderRules) -> None:
    result = decode(b"SEND\nDestination:/a\nContent-Length:9\nReceipt:1\n\nx\0", rules)
    names = (("Destination", "/a"), ("Content-Length", "9"), ("Receipt", "1"))
    assert result == [Frame("SEND", names, b"x")]


def test_a_head_is_parsed_without_the_decoder_too() -> None:
    head = parse_head(b"SEND\ndestination:/a\ncontent-length:3", V1_2, FrameLimits())
    assert (head.command, head.destination, head.content_length) == ("SEND", "/a", 3)


# Escaping.


@pytest.mark.parametrize(
    ("rules", "written"),
    [
        pytest.param(V1_1, "a\\\\b\\cc\\nd\re", marks=pytest.mark.covers("F13", "F21", "F25")),
        pytest.param(V1_2, "a\\\\b\\cc\\nd\\re", marks=pytest.mark.covers("F13", "F21")),
        (V1_0, None),
        (OPENING, None),
    ],
)
def test_text_is_escaped_by_the_version(rules: HeaderRules, written: str | None) -> None:
    assert encode_text("a\\b:c\nd\re", rules) == written


def test_1_0_trims_content_length_as_all_its_headers() -> None:
    (frame,) = decode(b"SEND\ncontent-length: 5 \n\na\0b\0c\0", V1_0)  # type: ignore[misc]
    assert frame.body == b"a\0b\0c"


@pytest.mark.parametrize("rules", ALL_RULES, ids=lambda rules: rules.name)
def test_no_version_carries_a_nul_and_some_no_line_ends(rules: HeaderRules) -> None:
    assert encode_text("a\0b", rules) is None
    can = rules in (V1_1, V1_2)
    assert (encode_text("\n", rules) is not None) is can
    assert (encode_text("\r", rules) is not None) is can


@given(st.data(), st.sampled_from(ALL_RULES))
def test_escaping_agrees_with_a_naive_one(data: st.DataObject, rules: HeaderRules) -> None:
    text = data.draw(header_texts(rules, is_name=False))
    assert encode_text(text, rules) == naive_escape(text, rules)


@pytest.mark.covers("F21")
@given(st.data(), st.sampled_from(VERSIONS), st.booleans())
def test_header_round_trip(data: st.DataObject, rules: HeaderRules, is_split: bool) -> None:
    sent = data.draw(st.lists(frames(rules), min_size=1, max_size=4))
    wire = b"".join(encode_frame(f.command, f.headers, rules, f.body) for f in sent)
    length = [(("content-length", str(len(f.body))),) if f.body else () for f in sent]
    expected = [
        Frame(f.command, f.headers + reported, f.body)
        for f, reported in zip(sent, length, strict=True)
    ]
    decoder = FrameDecoder(FrameLimits(), HeadCache(), rules)
    chunks = [wire[i : i + 1] for i in range(len(wire))] if is_split else [wire]
    assert frames_of(decoder, chunks) == expected
    assert decoder.error is None


# Receipt ids are unescaped and escaped again.


@pytest.mark.covers("R01")
@pytest.mark.parametrize(
    ("rules", "asked", "answered"),
    [
        (V1_0, b"a:b\\c", b"a:b\\c"),
        (V1_0, b" \tpadded ", b"padded "),
        (V1_1, b"a\\cb\\\\c\\nd", b"a\\cb\\\\c\\nd"),
        (V1_1, b"a:b", b"a\\cb"),
        (V1_1, b"a\rb", b"a\rb"),
        (V1_1, b" x ", b" x "),
        (V1_2, b"a\\cb\\rc", b"a\\cb\\rc"),
        (V1_2, b"a:b:c", b"a\\cb\\cc"),
        (V1_2, b"x\r", b"x"),
        (V1_2, "ü😀".encode(), "ü😀".encode()),
        (V1_2, b"", b""),
        (OPENING, b"a:\\x\\", b"a:\\x\\"),
    ],
)
def test_a_receipt_is_echoed_as_its_version_writes_it(
    rules: HeaderRules, asked: bytes, answered: bytes
) -> None:
    (frame,) = decode(b"SEND\nfoo:1\nreceipt:" + asked + b"\n\n\0", rules)  # type: ignore[misc]
    assert frame.receipt is not None
    assert frame.headers == (("foo", "1"),)
    assert encode_receipt(frame.receipt) == b"RECEIPT\nreceipt-id:" + answered + b"\n\n\0\n"


@pytest.mark.covers("F14")
def test_an_empty_receipt_is_none_in_1_0() -> None:
    for line in (b"receipt:", b"receipt: \t"):
        (frame,) = decode(b"SEND\n" + line + b"\n\n\0", V1_0)  # type: ignore[misc]
        assert frame.receipt is None


def test_a_receipt_that_cannot_be_sent_back_is_refused() -> None:
    error = error_of(b"receipt:a\rb", V1_0)
    assert error.code == "bare-carriage-return"
    assert "1.0" in error.message


def test_names_like_receipt_are_no_receipts() -> None:
    (frame,) = decode(b"SEND\nreceipt-id:1\nxreceipt:2\n receipt:3\n\n\0", V1_2)  # type: ignore[misc]
    assert frame.receipt is None
    assert len(frame.headers) == 3


# Quotations in errors.


@pytest.mark.covers("R13")
@pytest.mark.parametrize(
    "line",
    [
        b"passcode:hunter2", b"Passcode: hunter2", b"passcode :hunter2", b" passcode:hunter2",
        b"authorization:Basic hunter2", b"AUTHORIZATION:hunter2\r", b"passcode hunter2",
        b"passcode:hun\rter2 hunter2", b"passcode:hunter2 \xff", b"passcode:hunter2\\t",
    ],
)  # fmt: skip
@pytest.mark.parametrize("rules", ALL_RULES, ids=lambda rules: rules.name)
def test_no_secret_is_quoted(rules: HeaderRules, line: bytes) -> None:
    others = [b"a:b", b"nocolon", b"a:\\x", b"a:\xff", b"a:b\0"]
    before = [other + b"\n" + line for other in others]
    behind = [line + b"\n" + other for other in others]
    frames = [b"CONNECT\n" + lines + b"\n\n\0" for lines in (line, *before, *behind)]
    for data in (*frames, line + b"x" * 40):
        result = decode(data, rules)
        if isinstance(result, FrameError):
            assert "hunter2" not in result.message
            assert b"hunter2" not in result.excerpt
            assert result.excerpt
    assert isinstance(result, FrameError)


def test_an_excerpt_is_short_and_cut_after_the_secrets_are_out() -> None:
    assert excerpt(b"CONNECT\nlogin:me\npasscode:secret\nhost:h") == (
        b"CONNECT\nlogin:me\npasscode:***\nhost:h"
    )
    assert len(excerpt(b"SEND\n" + b"a:b\n" * 1000)) == 512
    assert b"secret" not in excerpt(b"SEND\n" + b"x" * 490 + b"\npasscode:secret")
    assert excerpt(b"SEND\nthe-passcode:x") == b"SEND\nthe-passcode:x"


# --- what is shown of headers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["passcode", "Passcode", " passcode", "AUTHORIZATION", "token", "access-token", "password"],
)
def test_no_repr_tells_a_secret(name: str) -> None:
    headers = (("login", "me"), (name, "geheim"), ("tokens", "7"), ("x-passcode", "y"))
    for shown in (Frame("CONNECT", headers), Head("CONNECT", headers)):
        text = repr(shown)
        assert "geheim" not in text
        assert f"({name!r}, '***')" in text
        assert "('login', 'me')" in text
        assert "('tokens', '7'), ('x-passcode', 'y')" in text
    run = FrameRun(Head("CONNECT", headers), [b""], [])
    assert "geheim" not in repr(run)
    assert "geheim" not in repr([*run.frames()])


def test_a_repr_shows_all_other_fields() -> None:
    frame = Frame("SEND", (("destination", "/a"),), b"x")
    assert repr(frame) == (
        "Frame(command='SEND', headers=(('destination', '/a'),), body=b'x', receipt=None)"
    )
    assert repr(Frame("SEND", ())) == "Frame(command='SEND', headers=(), body=b'', receipt=None)"
