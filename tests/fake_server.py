"""A fake HTTP server that returns prepared answers and records requests."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit


@contextmanager
def fake_server(answers):
    """Yield (address, requests so far).

    ``answers`` is {"METHOD /path": JSON, bytes, or (status, headers)}.
    """
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            seen.append((f"{self.command} {parts.path}", dict(parse_qsl(parts.query)), body, dict(self.headers)))
            found = answers.get(f"{self.command} {parts.path}", (404, {}))
            found = found(dict(parse_qsl(parts.query)), body) if callable(found) else found
            status, headers = found if isinstance(found, tuple) else (200, {})
            data = (
                found if isinstance(found, bytes) else b"" if isinstance(found, tuple) else json.dumps(found).encode()
            )
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815, as http.server calls them

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def changes(seen):
    return [(what, query, body) for what, query, body, _ in seen if not what.startswith("GET ")]
