"""What a client that was generated from /openapi.json does. Argument: the URL of the server."""

import json
import re
import sys
from http import HTTPStatus
from io import BytesIO

from generated import Client
from generated.api.default import delete_value, get_value, list_keys, put_value, ready, touch_value
from generated.models import Page, Problem
from generated.types import File

client = Client(base_url=sys.argv[1])


def put(key, value, **more):
    return put_value.sync_detailed(key, client=client, body=File(payload=BytesIO(value)), **more)


def get(key, **more):
    return get_value.sync_detailed(key, client=client, **more)


first = put("a/b c?", b"1", if_none_match="*")
assert first.status_code == HTTPStatus.CREATED, first
got = get("a/b c?")
assert (got.status_code, got.parsed.payload.read()) == (HTTPStatus.OK, b"1")
assert got.headers["ETag"] == first.headers["ETag"]

# Only if nobody else has changed it.
assert put("a/b c?", b"2", if_match=first.headers["ETag"]).status_code == HTTPStatus.NO_CONTENT
late = put("a/b c?", b"3", if_match=first.headers["ETag"])
assert late.status_code == HTTPStatus.PRECONDITION_FAILED and isinstance(late.parsed, Problem)
assert (late.parsed.code, late.parsed.outcome) == ("precondition_failed", "not-applied"), late.parsed
assert put("a/b c?", b"3", if_none_match="*").status_code == HTTPStatus.PRECONDITION_FAILED
known = get("a/b c?", if_none_match=got.headers["ETag"])
assert known.parsed.payload.read() == b"2"
assert get("a/b c?", if_none_match=known.headers["ETag"]).status_code == HTTPStatus.NOT_MODIFIED
part = get("a/b c?", range_="bytes=0-0")
assert (part.status_code, part.parsed.payload.read()) == (HTTPStatus.PARTIAL_CONTENT, b"2")

# Pages of two.
for number in range(5):
    put(f"l/{number}", b"value", ttl=60)
keys, after = [], {}
while after is not None:
    page = list_keys.sync(client=client, prefix="l/", limit=2, **after)
    assert isinstance(page, Page), page
    keys += [row.key for row in page.keys]
    assert all(row.size == 5 and row.expires for row in page.keys)
    after = {"after": page.next_} if page.next_ else None
assert keys == [f"l/{number}" for number in range(5)], keys
assert touch_value.sync_detailed("l/0", client=client, touch="", ttl=90).status_code == HTTPStatus.NO_CONTENT

assert delete_value.sync_detailed("a/b c?", client=client).status_code == HTTPStatus.NO_CONTENT
absent = get("a/b c?")
assert (absent.status_code, absent.parsed.code) == (HTTPStatus.NOT_FOUND, "absent")
assert ready.sync_detailed(client=client).status_code == HTTPStatus.OK

# What the server takes, the document allows.
with open("openapi.json") as file:
    parameters = json.load(file)["components"]["parameters"]
for name, value in [("Key", "k" * 1024), ("Prefer", "wait=30"), ("ContentEncoding", "br, gzip")]:
    schema = parameters[name]["schema"]
    fits = re.search(schema.get("pattern", ""), value) and len(value) <= schema.get("maxLength", len(value))
    assert fits, (name, schema)
