"""Errors of the service as `problem+json` (RFC 9457)."""

from http import HTTPStatus

from pydantic import BaseModel, Field
from starlette.responses import Response

KIND = "application/problem+json"
GONE = 499  # status of requests whose client has disconnected, for log and metrics
INTERNAL = "an error in the service; its log has the details"


class Problem(BaseModel):
    """The body of an error response (RFC 9457)."""

    type: str = "about:blank"
    title: str = Field(description="The status in words.")
    status: int
    detail: str = Field(description="What was found, what was expected, and how to correct it.")
    where: str | None = Field(default=None, description="The wrong part of the request, such as image or question.")


class RequestRefused(Exception):
    """An error that rejects a request, with an HTTP status and a message for the client.

    `where`: the part of the request that is wrong. `retry`: seconds after which the client may retry. `close`: end the
    connection.
    """

    def __init__(
        self, status: int, detail: str, where: str | None = None, retry: int | None = None, close: bool = False
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.where, self.retry, self.close = status, detail, where, retry, close

    def response(self) -> Response:
        headers = {"Retry-After": str(self.retry)} if self.retry is not None else {}
        if self.close:  # the rest of the request is not read, so the connection must be closed
            headers["Connection"] = "close"
        title = "Client Gone" if self.status == GONE else HTTPStatus(self.status).phrase
        problem = Problem(title=title, status=self.status, detail=self.detail, where=self.where)
        content = problem.model_dump_json(exclude_none=True)
        return Response(content.encode("utf-8", "replace"), self.status, headers, media_type=KIND)
