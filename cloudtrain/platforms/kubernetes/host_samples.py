"""The samples and ranks of a job's hosts, each from the log of its pod: the leader's log has only its own."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from cloudtrain.errors import PlatformError
from cloudtrain.observe.course import Course, HostRanks
from cloudtrain.observe.event_lines import parse_event_line
from cloudtrain.observe.samples import FEWEST, MOST_IN_ALL, add_recent
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.life.objects import Snapshot
from cloudtrain.platforms.kubernetes.life.pods import Pod, newest
from cloudtrain.platforms.kubernetes.logs import (
    LONGEST_TAIL,
    PATIENCE,
    READERS,
    TAIL_LINES,
    logged,
    may_be_event,
    read_log,
)
from cloudtrain.platforms.kubernetes.pod_log import Position

OF_RANKS = ("launch", "rank-ended", "step", "metric")
FRESH_SECONDS = 10.0
"""Hosts record a sample at most this often."""
MOST_PODS = 64
"""The maximum number of known logs to read in one look: those that were read least recently."""
LOOK_SECONDS = 15.0
"""After this time, a look starts to read no further log, and ends with what it has read so far."""


class HostSamples:
    """The recent samples of the hosts of the last attempt, and their ranks. Threads may share it.

    The first look reads the end of each log. Later ones read the new lines of at most `MOST_PODS` logs. If
    `LOOK_SECONDS` end a look, the next one continues there. A log that cannot be read is left out.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._positions: dict[str, Position] = {}
        """By pod, the least recently read one first."""
        self._is_complete: set[str] = set()
        self._samples: dict[str, dict[str, list[dict[str, Any]]]] = {}
        """By pod."""
        self._courses: dict[str, Course] = {}
        """By pod, with the ranks of its host."""
        self._due_at = float("-inf")

    def __call__(self, objects: Snapshot) -> dict[str, list[dict[str, Any]]]:
        """Events by host, oldest first, as in `Summary.samples`."""
        pods = {pod.uid: pod for pod in newest(logged(objects)) if not pod.is_leader}
        with self._lock:
            if time.monotonic() >= self._due_at:
                open_pods = {uid: pod for uid, pod in pods.items() if uid not in self._is_complete}
                new = [pod for uid, pod in open_pods.items() if uid not in self._positions]
                known = [open_pods[uid] for uid in self._positions if uid in open_pods][:MOST_PODS]
                until, most = time.monotonic() + LOOK_SECONDS, max(FEWEST, MOST_IN_ALL // max(1, len(pods)))
                with ThreadPoolExecutor(READERS) as pool:
                    [*pool.map(lambda pod: self._read(pod, until, most), new + known)]
                self._due_at = time.monotonic() + FRESH_SECONDS
            found: dict[str, list[dict[str, Any]]] = {}
            for uid in pods:
                found.update(self._samples.get(uid, {}))
            return found

    def ranks(self, objects: Snapshot) -> dict[str, HostRanks]:
        """The ranks of these hosts as of the last call, from the launch or the last sample."""
        found = {}
        with self._lock:
            for pod in newest(logged(objects)):
                course, samples = self._courses.get(pod.uid), self._samples.get(pod.uid, {}).get(pod.host)
                if course is None:
                    continue
                known = course.hosts.get(pod.host, HostRanks())
                last = (samples[-1].get("ranks") if samples else None) or ()
                found[pod.host] = replace(known, ranks=known.ranks or sorted(map(int, last)))
        return found

    def _read(self, pod: Pod, until: float, most: int) -> None:
        """Read the new lines of one log, at most until ``until``. Keep ``most`` samples."""
        if time.monotonic() > until:
            return
        position = self._positions.pop(pod.uid, None) or Position()
        self._positions[pod.uid] = position
        position.reconnect()
        recent = self._samples.setdefault(pod.uid, {})
        course = self._courses.setdefault(pod.uid, Course())
        limits: dict[str, Any] = {"since": position.since, "idle": PATIENCE, "attempts": 2}
        try:
            for part in read_log(self._api, pod, LONGEST_TAIL, tail=TAIL_LINES, **limits):
                for line in filter(may_be_event, position.new(part)):
                    event = parse_event_line(line.text, pod.host, (line.time or 0) / 1e9)
                    if event and event["event"] == "sample":
                        add_recent(recent, event)
                        del recent[pod.host][:-most]
                    elif event and event["event"] in OF_RANKS:
                        if event["event"] == "launch":  # the container of this pod may have been restarted
                            course.hosts.clear()
                        with contextlib.suppress(KeyError, TypeError, ValueError):  # a script may forge one
                            course.add(event)
                if time.monotonic() > until:
                    return
        except PlatformError:  # the node may be lost, or the pod was deleted
            return
        if pod.log_has_ended:
            self._is_complete.add(pod.uid)
