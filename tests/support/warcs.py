"""Records of a WARC."""

HTML = b"<html><body>" + b"<p>kite</p>" * 40 + b"</body></html>"


def record(
    number: int | str, body: bytes = HTML, headers: str = "", length: int | None = None, media: str = "text/html"
) -> bytes:
    http = f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\n{headers}\r\n".encode() + body
    told = len(http) if length is None else length
    return (
        (
            f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.test/{number}\r\n"
            "WARC-Date: 2026-01-01T00:00:00Z\r\n"
            f"WARC-Record-ID: <urn:uuid:{number:0>8}-0000-0000-0000-000000000000>\r\n"
            f"Content-Type: application/http; msgtype=response\r\nContent-Length: {told}\r\n\r\n"
        ).encode()
        + http
        + b"\r\n\r\n"
    )
