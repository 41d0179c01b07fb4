"""A stand-in for the REST interface of a Flink cluster."""

from __future__ import annotations

import http.server
import json
import threading


class FlinkStandIn:
    """A server with an overview and with jobs, which it cancels on request.

    Attributes:
      overview: The content of /overview; see Flink's documentation.
      jobs: The jobs in /jobs/overview.
    """

    def __init__(self, version="1.19.3", slots=4, task_managers=2):
        self.overview = {
            "flink-version": version, "slots-total": slots, "slots-available": slots,
            "taskmanagers": task_managers,
        }  # fmt: skip
        self.jobs = []
        stand_in = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer({"/overview": stand_in.overview,
                             "/jobs/overview": {"jobs": stand_in.jobs}}.get(self.path))  # fmt: skip

            def do_PATCH(self):
                for job in stand_in.jobs:
                    if self.path == f"/jobs/{job['jid']}?mode=cancel":
                        job["state"] = "CANCELED"
                        return self.answer({})
                return self.answer(None)

            def answer(self, content):
                body = json.dumps(content).encode()
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                """Log nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def add(self, name, state, start=1):
        self.jobs.append(
            {"jid": f"id-{len(self.jobs)}", "name": name, "state": state, "start-time": start}
        )

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
