"""As much of a W&B server as its client asks for when it sends a run: not W&B's own, which can't run here.

It keeps the rows of each run by their place, says how many it has, as the real one does, and can hang or answer 500.
"""

import json
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WandbServer:
    """Listens on loopback, on ``port`` where it is given; ``rows``: run -> its rows; ``exit_codes``: of those that have ended;
    ``mode``: ok, hang or fail."""

    def __init__(self, port: int = 0) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.summaries: dict[str, str] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.exit_codes: dict[str, int] = {}
        self.mode = "ok"
        self._closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}") if self._json() else {}
                if outer.mode == "hang":
                    outer._closing.wait(60)
                if outer.mode != "ok":
                    self.send_error(500)
                    return
                data = json.dumps(outer.answer(self.path, body)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _json(self) -> bool:
                return self.path.startswith(("/graphql", "/files"))

            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # clients that were killed, or have given up
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/file_stream"):
            run, files = path.split("/")[-2], body.get("files") or {}
            if history := files.get("wandb-history.jsonl"):
                begin, rows = history["offset"], [json.loads(line) for line in history["content"]]
                self.rows[run][begin : begin + len(rows)] = rows
            if body.get("complete"):
                self.exit_codes[run] = body["exitcode"]
            if summary := files.get("wandb-summary.json"):
                self.summaries[run] = summary["content"][-1]
            return {}
        query, asked = body.get("query", ""), body.get("variables") or {}
        run = str(asked.get("name", ""))
        if "RunResumeStatus" in query:
            bucket = self._bucket(run) if run in self.configs else None
            return {"data": {"model": {"name": "p", "entity": {"name": "e"}, "bucket": bucket}}}
        if "UpsertBucket" in query:
            made = run not in self.configs
            self.configs[run] = {**self.configs.get(run, {}), **json.loads(asked.get("config") or "{}")}
            return {"data": {"upsertBucket": {"bucket": self._bucket(run), "inserted": made}}}
        if "CreateRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"{self.url}/upload"} for name in asked["files"]]
            return {"data": {"createRunFiles": {"runID": run, "uploadHeaders": [], "files": files}}}
        return {"data": {"viewer": {"id": "v", "entity": "e", "username": "u"}}}

    def _bucket(self, run: str) -> dict[str, Any]:
        rows = self.rows[run]
        return {
            "id": run,
            "name": run,
            "displayName": run,
            "project": {"id": "p", "name": "p", "entity": {"id": "e", "name": "e"}},
            "summaryMetrics": self.summaries.get(run, "{}"),
            "historyLineCount": len(rows),
            "historyTail": json.dumps([json.dumps(row) for row in rows[-1:]]),
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "logLineCount": 0,
            "config": json.dumps(self.configs.get(run, {})),
            "tags": [],
            "wandbConfig": json.dumps({"t": 1}),
        }
