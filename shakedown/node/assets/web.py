"""Travels with scripts that ask a web server: which redirects they follow, and how a URL may be shown."""

from __future__ import annotations

import urllib.request
from typing import Any, Optional, Tuple
from urllib.parse import urlsplit

from shakedown.node.assets.words import Failure
from shakedown.node.inward import refusal


def public(url: str) -> str:
    """Return a URL as it may be shown. User, password and query give access, as in a bucket's signed URLs."""
    scheme, mark, rest = url.partition("://")
    place, query, _ = rest.partition("?")
    host, slash, path = place.partition("/")
    return scheme + mark + host.rpartition("@")[2] + slash + path + (query and "?...")


def origin(url: str) -> Tuple[str, str, Optional[int]]:
    """Return scheme, host and port of a URL. Failure for any but http and https, and for one that holds credentials."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        raise Failure("answer", "the server names no URL: {}".format(public(url[:200]))) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise Failure("answer", "the server names no http or https URL: {}".format(public(url[:200])))
    return parts.scheme, parts.hostname, port


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follow no redirect from https to http (without a checksum nothing else says whose bytes these are), none inwards,
    and only a few. Credentials stay at the origin that they were given for."""

    max_redirections = 5

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        there, words = origin(newurl), "{} redirects to {}".format(public(req.full_url), public(newurl))
        if req.type == "https" and there[0] == "http":
            raise Failure("downgrade", words + ", without TLS")
        reason = refusal(req.full_url, newurl)
        if reason:
            raise Failure("answer", "{}: {}".format(words, reason))
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and there != origin(req.full_url):
            request.remove_header("Authorization")
        return request
