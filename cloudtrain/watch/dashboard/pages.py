"""The pages of the dashboard, and the files that they load."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from cloudtrain._display.markup import Html
from cloudtrain.contract.text import escape_line, one_line
from cloudtrain.errors import CloudtrainError, JobNotFound
from cloudtrain.index import IndexEntry
from cloudtrain.job import Job
from cloudtrain.platforms import get_platform
from cloudtrain.sweep.trials import Trial
from cloudtrain.watch.dashboard import parts
from cloudtrain.watch.dashboard.actions import ACTIONS, Shown, again, possible
from cloudtrain.watch.dashboard.jobs import PAGE, Jobs, Wanted
from cloudtrain.watch.dashboard.looks import LOOK_SECONDS, PARTS, Watched
from cloudtrain.watch.report.comparison import comparison
from cloudtrain.watch.report.document import Section
from cloudtrain.watch.report.gather import gather_from, shown_request
from cloudtrain.watch.report.page import STYLE, section_html
from cloudtrain.watch.report.sweep import sweep_report
from cloudtrain.watch.sweeps import known_sweeps, look_at_sweep

MOST_COMPARED = 12
MOST_WATCHED = 200
"""The most jobs that are kept in memory: those whose pages were shown last."""
STATIC = {
    "htmx.js": ("htmx-2.0.11.min.js", "text/javascript"),
    "sse.js": ("htmx-ext-sse-2.2.4.min.js", "text/javascript"),
    "uplot.js": ("uPlot-1.6.32.iife.min.js", "text/javascript"),
    "uplot.css": ("uPlot-1.6.32.min.css", "text/css"),
    "dashboard.js": ("dashboard.js", "text/javascript"),
    "dashboard.css": ("dashboard.css", "text/css"),
}
"""The files that pages load, by name in the address. No other file on the disk can be read."""


class Pages:
    """The pages below the path ``root``.

    Args:
        is_read_only: whether every action is refused.
    """

    def __init__(self, root: str, *, is_read_only: bool = False) -> None:
        self._root = root
        self._is_read_only = is_read_only
        self._shown = Shown()
        self._jobs = Jobs()
        self._watched = lru_cache(MOST_WATCHED)(
            lambda entry: Watched(get_platform(entry.platform), entry.name)
        )
        self._templates = Environment(
            loader=PackageLoader("cloudtrain.watch.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals.update(root=root, job_path=job_path, sweep_path=sweep_path, key_of=key_of)

    def app(self) -> Starlette:
        routes = [
            Route("/", self.list),
            Route("/rows", self.rows),
            Route("/compare", self.compare),
            Route("/sweeps/{name}", self.sweep),
            Route("/sweeps/{name}/parts", self.sweep_parts),
            Route("/jobs/{platform}/{name}", self.job),
            Route("/jobs/{platform}/{name}/live", self.live),
            Route("/jobs/{platform}/{name}/points", self.points),
            Route("/jobs/{platform}/{name}/lines", self.lines),
            Route("/jobs/{platform}/{name}/checkpoints", self.checkpoints),
            Route("/jobs/{platform}/{name}/difference", self.difference),
            Route("/jobs/{platform}/{name}/resubmit", self.show_request),
            Route("/jobs/{platform}/{name}/resubmit", self.resubmit, methods=["POST"]),
            Route("/jobs/{platform}/{name}/{action}", self.act, methods=["POST"]),
            Route("/static/{name}", self.static),
        ]
        handlers: dict[Any, Any] = {CloudtrainError: self._error, HTTPException: self._http_error}
        return Starlette(routes=[Mount(self._root, routes=routes)], exception_handlers=handlers)

    def list(self, request: Request) -> Response:
        """The list of jobs, without the states that only their platforms have: the page requests those later."""
        wanted = _wanted(request)
        listed = self._jobs.page(wanted, with_states=False)
        platforms = sorted({platform for platform, _ in self._jobs.entries()})
        return self._page("jobs.html", **_of_list(wanted, listed), platforms=platforms)

    def rows(self, request: Request) -> Response:
        wanted = _wanted(request)
        return self._page("rows.html", **_of_list(wanted, self._jobs.page(wanted)))

    def job(self, request: Request) -> Response:
        watched = self._find(request)
        look = watched.look()
        actions = [] if self._is_read_only else possible(watched.job, is_final=look.is_final)
        about = {**request.path_params, "is_read_only": self._is_read_only}
        return self._page("job.html", look=look, actions=actions, **about)

    def sweep(self, request: Request) -> Response:
        return self._sweep("sweep.html", request)

    def sweep_parts(self, request: Request) -> Response:
        return self._sweep("sweep_parts.html", request)

    def _sweep(self, template: str, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in known_sweeps():  # no other text from an address may become a path
            raise HTTPException(404, "There is no such sweep on this machine.")
        view, known = look_at_sweep(name, wait=False), self._jobs.entries()
        platform = view.plan.platform

        def address(trial: Trial) -> str:
            is_known = (platform, trial.name) in known
            return f"{self._root}/{job_path(platform, trial.name)}" if is_known else ""

        found = sweep_report(view, address)
        sections = [section_html(one) for one in found.sections if one.blocks]
        return self._page(
            template, name=name, subtitle=found.subtitle, sections=sections, is_over=view.is_over
        )

    def live(self, request: Request) -> Response:
        watched = self._find(request)
        return EventSourceResponse(_changes(watched), ping=15)

    def points(self, request: Request) -> Response:
        return JSONResponse(self._find(request).plots())

    def lines(self, request: Request) -> Response:
        """The last lines of the ranks that the form on the page selects."""
        logs, given = self._find(request).logs, request.query_params
        lines = logs.last(given.get("rank", ""), given.get("part", ""))
        reading = not (lines or logs.is_read or logs.problem)
        again = f"{request.url.path}?{request.url.query}"
        return self._page("lines.html", lines=lines, problem=logs.problem, reading=reading, again=again)

    def act(self, request: Request) -> Response:
        """Run an action on a job. `Guard` has checked that the request comes from a page of the dashboard."""
        self._check_writable()
        watched, action = self._find(request), ACTIONS.get(request.path_params["action"])
        if action is None:
            raise HTTPException(404)
        return self._part(lambda: action(watched.job))

    def checkpoints(self, request: Request) -> Response:
        watched = self._find(request)
        return self._part(lambda: parts.checkpoints(watched.job))

    def difference(self, request: Request) -> Response:
        """The differences from the request of another job; of several with its name, the newest."""
        watched, other = self._find(request), request.query_params.get("other", "").strip()

        def found() -> Section:
            row = next((row for row in self._jobs.entries().values() if row[0] == other), None)
            if row is None:
                raise JobNotFound(
                    f"there is no job {other} among those submitted from this machine",
                    hint="Give a name from the list of jobs.",
                )
            return parts.difference(watched.job, Job(other, get_platform(row[1])))

        return self._part(found)

    def show_request(self, request: Request) -> Response:
        """The request that would be submitted, and a form that submits exactly this request."""
        self._check_writable()
        watched = self._find(request)
        try:
            new = again(watched.job.platform, watched.name)
        except (CloudtrainError, OSError) as error:
            return self._page("result.html", kind="warning", text=one_line(error))
        token = self._shown.add(new)
        body = json.dumps(shown_request(new), indent=2, ensure_ascii=False)
        here = f"{self._root}/{job_path(watched.job.platform.name, watched.name)}"
        return self._page(
            "resubmit.html", name=new.job_name, body=body, token=token, action=f"{here}/resubmit"
        )

    async def resubmit(self, request: Request) -> Response:
        self._check_writable()
        token = parse_qs((await request.body()).decode("latin-1")).get("shown", [""])[0]
        watched = await run_in_threadpool(self._find, request)

        def submitted() -> str:
            return f"Submitted: {self._shown.submit(watched.job.platform, token).name}"

        return await run_in_threadpool(self._part, submitted)

    def _check_writable(self) -> None:
        if self._is_read_only:
            raise HTTPException(403, "This dashboard is read-only.")

    def _part(self, action: Callable[[], str | Section]) -> Response:
        """The result of ``action``, or its error, as a part of the page."""
        try:
            found = action()
        except (CloudtrainError, OSError) as error:  # TimeoutError is an OSError
            return self._page("result.html", kind="warning", text=one_line(error))
        if isinstance(found, Section):
            return HTMLResponse(section_html(found))
        return self._page("result.html", kind="success", text=found)

    def compare(self, request: Request) -> Response:
        """Jobs side by side: their parameters, metrics and durations."""
        keys = [*dict.fromkeys(request.query_params.getlist("job"))][:MOST_COMPARED]
        entries, jobs = self._jobs.entries(), []
        for platform, _, name in (key.partition("/") for key in keys):
            if (platform, name) in entries:
                with contextlib.suppress(JobNotFound):
                    jobs.append(gather_from(name, get_platform(platform)))
        sections = [section_html(one) for one in comparison(jobs).sections if one.blocks] if jobs else []
        shown = [(job.platform, job.name) for job in jobs]
        return self._page("compare.html", jobs=shown, left_out=len(keys) - len(jobs), sections=sections)

    def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name == "report.css":
            return Response(STYLE, media_type="text/css")
        if name not in STATIC:
            raise HTTPException(404)
        file, kind = STATIC[name]
        content = files("cloudtrain.watch.dashboard").joinpath("static", file).read_bytes()
        return Response(content, media_type=kind, headers={"Cache-Control": "max-age=3600"})

    def _find(self, request: Request) -> Watched:
        """The job of an address if the index has it. No other text from an address reaches a platform.

        A later job of the same name is a different one, because an entry includes the time of submission.
        """
        found = self._jobs.entries().get((request.path_params["platform"], request.path_params["name"]))
        if found is None:
            raise HTTPException(404, "There is no such job among those submitted from this machine.")
        return self._watched(IndexEntry(*found[:3]))

    def _page(self, template: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self._templates.get_template(template).render(values), status)

    def _error(self, _request: Request, error: CloudtrainError) -> Response:
        return self._page("error.html", 502, message=one_line(error))

    def _http_error(self, _request: Request, error: HTTPException) -> Response:
        return self._page("error.html", error.status_code, message=error.detail)


def _shown(value: Any) -> Any:
    """Escape a value in a template, so that no control character in a job's text reaches the page."""
    return value if hasattr(value, "__html__") else escape_line(str(value))


def job_path(platform: str, name: str) -> str:
    return f"jobs/{quote(platform, safe='')}/{quote(name, safe='')}"


def sweep_path(name: str) -> str:
    return f"sweeps/{quote(name, safe='')}"


def key_of(platform: str, name: str) -> str:
    """The key of a job in the address of a comparison."""
    return f"{platform}/{name}"


def _wanted(request: Request) -> Wanted:
    given = request.query_params
    page = given.get("page", "0")
    number = int(page) if page.isdecimal() and len(page) < 7 else 0
    return Wanted(
        **{key: given.get(key, "") for key in ("name", "platform", "where", "sort", "group")}, page=number
    )


def _of_list(wanted: Wanted, listed: Any) -> dict[str, Any]:
    fields = {key: value for key, value in vars(wanted).items() if value and key != "page"}
    last = max(listed.count - 1, 0) // PAGE
    pages = {
        name: urlencode({**fields, "page": page})
        for name, page in (("newer", wanted.page - 1), ("older", wanted.page + 1))
        if 0 <= page <= last
    }
    return {
        "wanted": wanted,
        "listed": listed,
        "pages": pages,
        "first": wanted.page * PAGE + 1,
        "here": urlencode({**fields, "page": wanted.page}),
    }


async def _changes(watched: Watched) -> AsyncIterator[ServerSentEvent]:
    """The parts of a job's page that have changed, until the job ends."""
    sent: dict[str, object] = {}
    while True:
        look = await run_in_threadpool(watched.look)
        for name in PARTS:
            html = look.parts.get(name, Html(""))
            if sent.get(name) != html:
                sent[name] = html
                yield ServerSentEvent(html, event=name)
        if sent.get("values") != look.values:
            sent["values"] = look.values
            yield ServerSentEvent("", event="points")
        if look.is_final:
            yield ServerSentEvent("", event="ended")
            return
        await asyncio.sleep(LOOK_SECONDS)
