"""Why a pod gets no node: the messages of the scheduler and of autoscalers, as sentences.

The texts are those of kube-scheduler 1.20 to 1.37, Volcano, the cluster autoscaler and Karpenter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cloudtrain.platforms.kubernetes.life.objects import Object, text
from cloudtrain.platforms.kubernetes.life.why import Why

_NODES = re.compile(
    r"(?P<fit>\d+)/(?P<all>\d+) nodes are (?:un)?available: ?(?P<why>.*?)"
    r"(?:[.,] ?(?:no new claims to deallocate[.,] ?)?(?:preemption: (?P<preemption>.*))?)?\.*\s*",
    re.DOTALL,
)
_COUNTED = re.compile(r"(?P<count>\d+) (?P<why>.*)", re.DOTALL)
_INSUFFICIENT = re.compile(r"Insufficient (?P<resource>\S+)")
_TAINT = re.compile(
    r"node\(s\) had (?:untolerated )?taint(?:\(s\)|s)?(?: \{(?P<taint>[^}]*)\})?(?:,? that the pod didn't tolerate)?"
)
_CLAIM = re.compile(
    r'persistentvolumeclaim "(?P<name>[^"]+)" (?P<state>not found|bound to .*|is being deleted)'
)
_NO_VICTIMS = "No preemption victims"
_NOT_HELPFUL = "Preemption is not helpful"

_PEOPLE = {"cpu": "CPUs", "ephemeral-storage": "local disk space", "pods": "places for pods"}

_SELECTOR = (
    "{lack} the labels that the job asks for",
    "Compare platform_options.node_selector with: kubectl get nodes --show-labels",
)
_VOLUME = (
    "cannot use the job's volume",
    "A volume of one zone or node can be used only there: kubectl describe pvc",
)
_REASONS: tuple[tuple[str, str, str], ...] = (
    ("Too many pods", "{have} as many pods as allowed", "It starts when other pods end."),
    (
        "node(s) were unschedulable",
        "{are} cordoned",
        "An administrator keeps them free, often for maintenance: kubectl get nodes",
    ),
    ("node(s) were not ready", "{are} not ready", "See why: kubectl describe nodes"),
    ("node(s) didn't match Pod's node affinity/selector", *_SELECTOR),
    ("node(s) didn't match node selector", *_SELECTOR),
    ("node(s) didn't match pod affinity", "{are} excluded by a rule about other pods", ""),
    ("node(s) didn't match pod anti-affinity", "already {run} a pod that it must not share a node with", ""),
    (
        "node(s) didn't satisfy existing pods anti-affinity",
        "{run} a pod that shares its node with no other",
        "",
    ),
    ("node(s) didn't match pod topology spread", "would spread the job unevenly", ""),
    (
        "node(s) didn't have free ports",
        "{have} no free port of the host that the job asks for",
        "",
    ),
    (
        "node(s) didn't find available persistent volumes to bind",
        "{have} no free volume for the job's claim",
        "See the claim: kubectl describe pvc",
    ),
    ("node(s) did not have enough free storage", "{have} too little storage for the job's volume", ""),
    ("node(s) exceed max volume count", "{have} as many volumes as possible", ""),
    ("node(s) had volume node affinity conflict", *_VOLUME),
    ("node(s) had no available volume zone", *_VOLUME),
    ("cannot allocate all claims", "cannot allocate the devices that the job claims", ""),
)
_VERBS = {"have": "has", "are": "is", "lack": "lacks", "run": "runs"}


def why_unscheduled(message: str) -> Why:
    """The sentence for the message of a scheduler: of the condition PodScheduled, or an event FailedScheduling.

    >>> why_unscheduled("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.").sentence
    '0/3 nodes have enough free nvidia.com/gpu'
    """
    match = _NODES.fullmatch(message.strip())
    if match is None:
        return _whole(message.strip().rstrip("."))
    reasons = [_COUNTED.fullmatch(one) for one in re.split(r", (?=\d+ )", match["why"].strip())]
    if not reasons or any(one is None for one in reasons):
        return _whole(match["why"].strip().rstrip("."))
    counted = [(int(one["count"]), one["why"].strip()) for one in reasons if one]
    nodes = f"{match['fit']}/{match['all']} nodes"
    advice = _advice([why for _, why in counted], match["preemption"] or "")
    only = _INSUFFICIENT.fullmatch(counted[0][1]) if len(counted) == 1 else None
    if only:
        return Why(f"{nodes} have enough free {_resource(only['resource'])}", advice)
    return Why(f"{nodes} fit: " + ", ".join(_phrase(count, why) for count, why in counted), advice)


def _resource(name: str) -> str:
    return _PEOPLE.get(name, name)


def _phrase(count: int, why: str) -> str:
    """The problem of ``count`` nodes: ``2 have too little free memory``."""
    lacking, taint = _INSUFFICIENT.fullmatch(why), _TAINT.fullmatch(why)
    if lacking:
        phrase = f"{{have}} too little free {_resource(lacking['resource'])}"
    elif taint:
        named = f" ({taint['taint'].strip().rstrip(':')})" if taint["taint"] else ""
        phrase = f"{{have}} a taint that the job does not tolerate{named}"
    else:
        found = next((known for known in _REASONS if why.startswith(known[0])), None)
        phrase = found[1] if found else why.replace("{", "(").replace("}", ")")
    return f"{count} " + phrase.format(**{verb: one if count == 1 else verb for verb, one in _VERBS.items()})


def _advice(reasons: Iterable[str], preemption: str) -> str:
    """The remedy for the first reason that the user can do something about.

    Args:
        preemption: what the scheduler says about pods that could give way: none can where a node is too small.
    """
    reasons = list(reasons)
    for why in reasons:
        found = next((known for known in _REASONS if why.startswith(known[0])), None)
        if found and found[2]:
            return found[2]
    if any(_INSUFFICIENT.fullmatch(why) for why in reasons):
        if _NO_VICTIMS in preemption:
            return "Other pods use or reserve the rest: it starts when they end."
        if _NOT_HELPFUL in preemption:
            return "No node has that much, used or not: ask for less for each host, or for other nodes."
        return "Other pods use the rest, or no node has that much: kubectl describe nodes"
    if any(_TAINT.fullmatch(why) for why in reasons):
        return "Set platform_options.tolerations if the job may run on tainted nodes: kubectl describe nodes"
    return ""


def _whole(message: str) -> Why:
    """The sentence for a message that is not about single nodes."""
    claim = _CLAIM.match(message)
    if claim and claim["state"] == "not found":
        return Why(
            f"the PersistentVolumeClaim {claim['name']} does not exist in its namespace",
            "Create it, or correct its name in the job: kubectl get pvc",
        )
    if "unbound immediate PersistentVolumeClaims" in message:
        return Why(
            "its PersistentVolumeClaim is not bound to a volume",
            "See why with: kubectl describe pvc. Often the storage class is missing, or has no space.",
        )
    if "no nodes available to schedule pods" in message:
        return Why("the cluster has no nodes")
    if "scheduling gates" in message or message == "SchedulingGated":
        return Why("a scheduling gate holds it back", "Its owner must remove the gate; Kueue does so itself.")
    if "pod group is not ready" in message or "minMember" in message or "minAvailable" in message:
        return Why(f"its pods start together, and not all of them fit yet ({message})")
    return Why(f"the scheduler says: {message}" if message else "the scheduler has not considered it yet")


def scale_up(events: Sequence[Object]) -> str:
    """The decision of an autoscaler about a pod, from its latest event; empty if there is none."""
    for event in reversed(events):
        reason, message = text(event, "reason"), text(event, "message").strip()
        if reason in ("TriggeredScaleUp", "Nominated", "ProvisioningRequestAccepted"):
            return "The cluster is adding a node for it, which may take some minutes."
        if reason == "NotTriggerScaleUp":
            why = message.partition(": ")[2]
            return "The autoscaler does not add a node" + (f": {why}." if why else ".")
        if reason == "FailedScaleUp":
            return f"The autoscaler could not add a node: {message.rstrip('.')}."
    return ""
