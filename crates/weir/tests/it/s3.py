"""What boto3 does with a bucket of weir. Arguments: the part to run, and the URL of the server.

The parts are called by s3.rs. Each ends with an exit code other than 0 if an answer is not what S3's manual says.
"""

import base64
import hashlib
import http.client
import io
import pathlib
import sys
import time
import urllib.error
import urllib.request
import zlib
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import boto3
import botocore.auth
from boto3.s3.transfer import TransferConfig
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

part, url, *more = sys.argv[1:]


def client(access_key="app", secret_key="app-secret-app-secret", **config):
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, **config)
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="eu-central-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        verify=more[0] if url.startswith("https") else None,
        config=config,
    )


s3 = client()
BUCKET = "weir"


def fails(expected, call, *args, **kwargs):
    """The call fails with this status and code; gives the answer's fields."""
    try:
        call(*args, **kwargs)
    except ClientError as error:
        meta, code = error.response["ResponseMetadata"], error.response["Error"]["Code"]
        got = (meta["HTTPStatusCode"], code)
        assert got == expected, f"{got} in place of {expected}: {error}"
        return meta["HTTPHeaders"]
    raise AssertionError(f"no failure in place of {expected}")


def put(key, body, **more):
    return s3.put_object(Bucket=BUCKET, Key=key, Body=body, **more)


def get(key, **more):
    return s3.get_object(Bucket=BUCKET, Key=key, **more)


def objects():
    for key in ["a", "b/c d+e%2F?&=#'\"", "ü/…", "x//y/../z", "k" * 1024, "slash/"]:
        value = key.encode() * 3
        made = put(key, value, ContentType="text/x", ContentEncoding="zstd")
        got = get(key)
        assert got["Body"].read() == value, key
        assert got["ETag"] == made["ETag"] and got["ETag"].endswith('-1"'), got["ETag"]
        assert (got["ContentType"], got["ContentEncoding"]) == ("text/x", "zstd")
        head = s3.head_object(Bucket=BUCKET, Key=key)
        assert head["ETag"] == made["ETag"] and head["ContentLength"] == len(value)
        now = datetime.now(timezone.utc)
        assert now - timedelta(minutes=1) < head["LastModified"] <= now
        assert head["LastModified"] == got["LastModified"]
        s3.delete_object(Bucket=BUCKET, Key=key)
        s3.delete_object(Bucket=BUCKET, Key=key)
        fails((404, "NoSuchKey"), get, key)
        fails((404, "404"), s3.head_object, Bucket=BUCKET, Key=key)
    put("empty", b"")
    assert get("empty")["Body"].read() == b""
    # What S3's own clients send: a value up to the limit at once, from a stream.
    large = bytes(range(256)) * 32768
    s3.upload_fileobj(io.BytesIO(large), BUCKET, "large", Config=TransferConfig(multipart_threshold=64 << 20))
    assert get("large")["Body"].read() == large
    taken = io.BytesIO()
    s3.download_fileobj(BUCKET, "large", taken)
    assert taken.getvalue() == large, "in ranges"
    fails((400, "EntityTooLarge"), put, "larger", large + b"x")
    parts = [("bytes=0-3", large[:4], "bytes 0-3/8388608"), ("bytes=-2", large[-2:], "bytes 8388606-8388607/8388608")]
    for wanted, expected, said in parts:
        got = get("large", Range=wanted)
        assert (got["Body"].read(), got["ContentRange"]) == (expected, said)
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    fails((416, "InvalidRange"), get, "large", Range="bytes=8388608-")
    for algorithm in ["CRC32", "SHA1", "SHA256"]:
        put("sum", b"value", ChecksumAlgorithm=algorithm)
    fails((400, "BadDigest"), put, "sum", b"value", ChecksumSHA256="LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=")
    fails((400, "BadDigest"), put, "sum", b"value", ContentMD5="XUFAKrxLKna5cZ2REBfFkg==")
    assert get("sum")["Body"].read() == b"value"
    client(request_checksum_calculation="when_required").put_object(Bucket=BUCKET, Key="sum", Body=b"2")
    for key in ["empty", "large", "sum"]:
        s3.delete_object(Bucket=BUCKET, Key=key)


def conditions():
    first = put("c", b"1", IfNoneMatch="*")["ETag"]
    refused = fails((412, "PreconditionFailed"), put, "c", b"2", IfNoneMatch="*")
    assert refused["weir-outcome"] == "not-applied", refused
    second = put("c", b"2", IfMatch=first)["ETag"]
    assert second != first
    fails((412, "PreconditionFailed"), put, "c", b"3", IfMatch=first)
    # An MD5 is no ETag here.
    fails((412, "PreconditionFailed"), put, "c", b"3", IfMatch="0cc175b9c0f1b6a831c399e269772661")
    fails((404, "NoSuchKey"), put, "absent", b"3", IfMatch=first)
    fails((412, "PreconditionFailed"), get, "c", IfMatch=first)
    fails((304, "304"), get, "c", IfNoneMatch=second)
    assert get("c", IfNoneMatch=first, IfMatch=second)["Body"].read() == b"2"
    fails((412, "PreconditionFailed"), s3.delete_object, Bucket=BUCKET, Key="c", IfMatch=first)
    s3.delete_object(Bucket=BUCKET, Key="c", IfMatch=second)
    fails((404, "NoSuchKey"), get, "c")


def lists():
    keys = sorted([f"l/{number:04}" for number in range(1100)] + ["l/x/1", "l/x/2", "l/y/1", "l/z é+&<>\x01"])
    for key in keys:
        put(key, key.encode())
    for version in ["list_objects_v2", "list_objects"]:
        def pages(**more):
            return list(s3.get_paginator(version).paginate(Bucket=BUCKET, Prefix="l/", **more))

        found = [row for page in pages() for row in page["Contents"]]
        assert [row["Key"] for row in found] == keys
        assert found[0]["Size"] == 6 and found[0]["ETag"] == s3.head_object(Bucket=BUCKET, Key="l/0000")["ETag"]
        now = datetime.now(timezone.utc)
        assert all(now - timedelta(minutes=10) < row["LastModified"] <= now for row in found)
        short = pages(PaginationConfig={"PageSize": 7}, Delimiter="/")
        assert all(len(page.get("Contents", [])) + len(page.get("CommonPrefixes", [])) <= 7 for page in short)
        assert [row["Prefix"] for page in short for row in page.get("CommonPrefixes", [])] == ["l/x/", "l/y/"]
        left = [key for key in keys if "/" not in key[2:]]
        assert [row["Key"] for page in short for row in page.get("Contents", [])] == left
    after = s3.list_objects_v2(Bucket=BUCKET, Prefix="l/", StartAfter="l/1098", MaxKeys=2)
    assert [row["Key"] for row in after["Contents"]] == ["l/1099", "l/x/1"] and after["IsTruncated"]
    none = s3.list_objects_v2(Bucket=BUCKET, MaxKeys=0)
    assert none["KeyCount"] == 0 and not none["IsTruncated"] and "Contents" not in none
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="nothing")["KeyCount"] == 0
    fails((400, "InvalidArgument"), s3.list_objects_v2, Bucket=BUCKET, ContinuationToken="?")


def buckets():
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == [BUCKET]
    s3.head_bucket(Bucket=BUCKET)
    assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] is None
    fails((409, "BucketAlreadyOwnedByYou"), s3.create_bucket, Bucket=BUCKET)
    fails((404, "404"), s3.head_bucket, Bucket="other")
    fails((404, "NoSuchBucket"), s3.list_objects_v2, Bucket="other")
    fails((501, "NotImplemented"), s3.create_bucket, Bucket="other")
    fails((501, "NotImplemented"), s3.delete_bucket, Bucket=BUCKET)


def refusals():
    put("r", b"kept")
    fails((403, "SignatureDoesNotMatch"), client(secret_key="wrong-secret-wrong-secret").get_object, Bucket=BUCKET, Key="r")
    fails((403, "InvalidAccessKeyId"), client(access_key="nobody").get_object, Bucket=BUCKET, Key="r")
    fails((400, "InvalidRequest"), client(signature_version="s3").get_object, Bucket=BUCKET, Key="r")
    reader = client("reader", "reader-secret-reader")
    assert reader.get_object(Bucket=BUCKET, Key="r")["Body"].read() == b"kept"
    refused = fails((403, "AccessDenied"), reader.put_object, Bucket=BUCKET, Key="r", Body=b"x")
    assert refused["weir-outcome"] == "not-applied", refused
    fails((403, "AccessDenied"), reader.get_object, Bucket=BUCKET, Key="other")
    fails((403, "AccessDenied"), reader.list_objects_v2, Bucket=BUCKET)
    fails((403, "AccessDenied"), reader.delete_object, Bucket=BUCKET, Key="r")
    writer = client("writer", "writer-secret-writer")
    writer.put_object(Bucket=BUCKET, Key="w/1", Body=b"x")
    assert writer.list_objects_v2(Bucket=BUCKET, Prefix="w/")["KeyCount"] == 1
    fails((403, "AccessDenied"), writer.get_object, Bucket=BUCKET, Key="w/1")
    fails((403, "AccessDenied"), writer.put_object, Bucket=BUCKET, Key="r", Body=b"x")
    fails((403, "AccessDenied"), writer.delete_object, Bucket=BUCKET, Key="r")
    for prefix in ["", "r", "w"]:
        fails((403, "AccessDenied"), writer.list_objects_v2, Bucket=BUCKET, Prefix=prefix)
    writer.delete_object(Bucket=BUCKET, Key="w/1")
    now = botocore.auth.get_current_datetime
    try:
        botocore.auth.get_current_datetime = lambda *args: now(*args) - timedelta(minutes=20)
        fails((403, "RequestTimeTooSkewed"), get, "r")
    finally:
        botocore.auth.get_current_datetime = now
    signed = s3.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": "r"}, ExpiresIn=60)
    with urllib.request.urlopen(signed) as answer:
        assert answer.read() == b"kept" and parsedate_to_datetime(answer.headers["Last-Modified"])
    etag = s3.head_object(Bucket=BUCKET, Key="r")["ETag"]
    for tag, expected in [(etag, (206, b"pt")), ('"1-1"', (200, b"kept"))]:
        resumed = urllib.request.Request(signed, headers={"Range": "bytes=2-", "If-Range": tag})
        with urllib.request.urlopen(resumed) as answer:
            assert (answer.status, answer.read()) == expected, tag
    upload = s3.generate_presigned_url("put_object", {"Bucket": BUCKET, "Key": "signed"}, ExpiresIn=60)
    request = urllib.request.Request(upload, data=b"by a URL", method="PUT", headers={"Content-Type": ""})
    urllib.request.urlopen(request).close()
    assert get("signed")["Body"].read() == b"by a URL"

    # The SDKs for JavaScript and Go sign fields as parameters.
    def signed_url(method, query):
        request = AWSRequest(method, f"{url}/{BUCKET}/signed?{query}")
        keys = Credentials("app", "app-secret-app-secret")
        botocore.auth.S3SigV4QueryAuth(keys, "s3", "us-east-1", 60).add_auth(request)
        return request.url

    of_nothing = "x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32&x-id=PutObject"
    request = urllib.request.Request(signed_url("PUT", of_nothing), b"by theirs", {"Content-Type": ""}, method="PUT")
    urllib.request.urlopen(request).close()
    with urllib.request.urlopen(signed_url("GET", "x-amz-checksum-mode=ENABLED&x-id=GetObject")) as answer:
        assert answer.read() == b"by theirs"
    upload = reader.generate_presigned_url("put_object", {"Bucket": BUCKET, "Key": "r"}, ExpiresIn=60)
    request = urllib.request.Request(upload, data=b"x", method="PUT", headers={"Content-Type": ""})
    try:
        urllib.request.urlopen(request).close()
        raise AssertionError("a reader has written by a URL")
    except urllib.error.HTTPError as error:
        assert error.code == 403 and b"<Code>AccessDenied<" in error.read()
    for wrong in [signed.replace("/r?", "/s?"), s3.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": "r"}, ExpiresIn=0)]:
        try:
            while True:
                urllib.request.urlopen(wrong).close()
        except urllib.error.HTTPError as error:
            assert error.code == 403 and b"<Code>" in error.read()
    fails((501, "NotImplemented"), s3.create_multipart_upload, Bucket=BUCKET, Key="m")
    fails((501, "NotImplemented"), s3.copy_object, Bucket=BUCKET, Key="m", CopySource=f"{BUCKET}/r")
    fails((501, "NotImplemented"), put, "m", b"x", Metadata={"a": "b"})
    fails((501, "NotImplemented"), s3.get_object_tagging, Bucket=BUCKET, Key="r")
    fails((404, "NoSuchKey"), get, "m")
    assert get("r")["Body"].read() == b"kept"


def trailers():
    """Over TLS the SDK sends chunks with a checksum behind them."""
    sent = []
    s3.meta.events.register("before-send.s3.PutObject", lambda request, **_: sent.append(dict(request.headers)))
    for body in [b"", b"short", bytes(3 << 20)]:
        put("t", io.BytesIO(body), ContentEncoding="gzip")
        got = get("t")
        assert got["Body"].read() == body and got["ContentEncoding"] == "gzip"
    text = {name.lower(): value.decode() if isinstance(value, bytes) else str(value) for name, value in sent[-1].items()}
    assert text["x-amz-content-sha256"] == "STREAMING-UNSIGNED-PAYLOAD-TRAILER", text


def chunks():
    """Over plain HTTP other SDKs sign each chunk, and what follows the last one."""
    kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"

    class Signer(botocore.auth.S3SigV4Auth):
        def payload(self, request):
            return kind

    def digest(data):
        return hashlib.sha256(data).hexdigest()

    def send(parts, spoil=b""):
        value = b"".join(parts)
        fields = {"x-amz-decoded-content-length": str(len(value)), "x-amz-trailer": "x-amz-checksum-crc32"}
        request = AWSRequest("PUT", f"{url}/{BUCKET}/chunks", {**fields, "Content-Encoding": "aws-chunked"}, b"")
        signer = Signer(Credentials("app", "app-secret-app-secret"), "s3", "eu-central-1")
        signer.add_auth(request)
        last, body = request.headers["Authorization"].split("Signature=")[1], b""

        def sign(what, *hashes):
            text = [f"AWS4-HMAC-SHA256-{what}", request.context["timestamp"], signer.credential_scope(request), last]
            return signer.signature("\n".join([*text, *hashes]), request)

        for part in [*parts, b""]:
            last = sign("PAYLOAD", digest(b""), digest(part))
            body += b"%x;chunk-signature=%s\r\n" % (len(part), last.encode()) + part + b"\r\n" * bool(part)
        trailer = b"x-amz-checksum-crc32:" + base64.b64encode(zlib.crc32(value).to_bytes(4, "big"))
        last = sign("TRAILER", digest(trailer + b"\n"))
        body += trailer + b"\r\nx-amz-trailer-signature:" + last.encode() + b"\r\n\r\n"
        if spoil:
            assert body.count(spoil) == 1
            body = body.replace(spoil, b"X" + spoil[1:])
        made = urllib.request.Request(request.url, body, dict(request.headers.items()), method="PUT")
        try:
            return urllib.request.urlopen(made).status, b""
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    for parts in [[b"a" * 65536, b"b" * 1000], [b"short"], []]:
        assert send(parts) == (200, b"")
        got = get("chunks")
        assert got["Body"].read() == b"".join(parts) and "ContentEncoding" not in got
    for spoil in [b"spoilt", b"amz-checksum-crc32:"]:
        status, said = send([b"spoilt value"], spoil)
        assert status == 403 and b"SignatureDoesNotMatch" in said, (status, said)
    assert get("chunks")["Body"].read() == b""


def changes():
    """The file of credentials gets another secret between the first byte of a value and the rest."""
    upload = s3.generate_presigned_url("put_object", {"Bucket": BUCKET, "Key": "late"}, ExpiresIn=600)
    connection = http.client.HTTPConnection(urlsplit(upload).netloc)
    connection.putrequest("PUT", upload.removeprefix(url))
    connection.putheader("Content-Length", "5")
    connection.endheaders(b"v")
    file = pathlib.Path("s3.toml")
    file.write_text(file.read_text().replace("app-secret-app-secret", "new-secret-new-secret"))
    new = client(secret_key="new-secret-new-secret")
    # The file is looked at every two seconds.
    for _ in range(600):
        try:
            new.list_objects_v2(Bucket=BUCKET)
            break
        except ClientError:
            time.sleep(0.1)
    connection.send(b"alue")
    answer = connection.getresponse()
    said = answer.read()
    assert (answer.status, answer.headers["Weir-Outcome"]) == (403, "not-applied") and b"InvalidAccessKeyId" in said, said
    fails((404, "NoSuchKey"), new.get_object, Bucket=BUCKET, Key="late")


def unknown():
    put_at_once = fails((500, "InternalError"), put, "u", b"x")
    assert put_at_once["weir-outcome"] == "unknown", put_at_once


globals()[part]()
