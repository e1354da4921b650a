"""Turns messages of schedulers, autoscalers, kubelets, registries, the API server and Kueue into sentences.

One engine matches tables of patterns. The texts are those of Kubernetes 1.20 to 1.37, Volcano, the cluster autoscaler,
Karpenter, and Kueue 0.6 to 0.18 (``kueue.x-k8s.io``, v1beta1 and v1beta2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cloudtrain.platforms.kubernetes.api.refusals import (
    CONFIGURATION_SECONDS,
    Rule,
    Rules,
    Why,
    first_match,
    parse_quantity,
    refusal,
    show_quantity,
)
from cloudtrain.platforms.kubernetes.life.objects import (
    Object,
    condition,
    holds,
    items,
    name_of,
    part,
    text,
    when,
)

NETWORK_SECONDS = 1800.0
"""How long an error may last that can resolve itself, but usually does not: see `CONFIGURATION_SECONDS`."""


# images: reports of the kubelet and the registry

PULL_ERRORS = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
PULL_ERRORS |= {"RegistryUnavailable", "SignatureValidationFailed", "ImageInspectError"}
"""Reasons why a container waits for its image."""

_PREFIXES = re.compile(
    r"^(?:Error: |ErrImagePull: |ImagePullBackOff: |Back-off pulling image \"[^\"]*\"(?:: )?|"
    r"Failed to pull image \"[^\"]*\": |"
    r"rpc error: code = \w+ desc = |failed to pull and unpack image \"[^\"]*\": |failed to copy: |"
    r"failed to resolve reference \"[^\"]*\": |failed to resolve image \"[^\"]*\": |Error response from daemon: |"
    r"initializing source \S+: |httpReadSeeker: |failed open: )"
)
_LONGEST = 300

_PULLS: Rules = (
    Rule(
        r"toomanyrequests|too many requests|\b429\b|pull rate limit|HAP429",
        "the registry limits how often image {image} may be pulled ({reported})",
        "It is tried again until the limit allows it. With credentials (platform_options.image_pull_secrets) or a "
        "mirror of the image, the limit is higher.",
    ),
    Rule(
        r"no match for platform|no matching manifest|exec format error",
        "image {image} does not exist for the processors of the node ({reported})",
        "Build it for them, for example: docker build --platform linux/amd64",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r"pull access denied|may require (?:authorization|'?docker login)|insufficient_scope|unauthorized|"
        r"authentication required|access (?:to the resource )?is denied|\b40[13]\b|no basic auth|forbidden|denied:",
        "the registry denies access to image {image}, or it does not exist ({reported})",
        "Check its name. For a private image, name a Secret with credentials in platform_options.image_pull_secrets: "
        "kubectl create secret docker-registry NAME --docker-server=... --docker-username=... --docker-password=...",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r"no such host|server misbehaving",
        "the registry of image {image} has no address ({reported})",
        "Check the name of the registry, and the DNS of the nodes.",
        NETWORK_SECONDS,
    ),
    Rule(
        r"x509|certificate|HTTP response to HTTPS client",
        "the nodes do not trust the registry of image {image} ({reported})",
        "The container runtime of the nodes must know the registry's certificate, or that it has none.",
        NETWORK_SECONDS,
    ),
    Rule(
        r"no space left",
        "a node has no disk space for image {image} ({reported})",
        "Ask the administrators of the cluster, or use a smaller image.",
        NETWORK_SECONDS,
    ),
    Rule(
        r"manifest unknown|name unknown|not found|does not exist|NotFound",
        "image {image} does not exist ({reported})",
        "Check its name and its tag.",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r"timeout|timed out|connection refused|connection reset|unreachable|EOF|deadline exceeded|50[0-4]",
        "the registry of image {image} does not answer ({reported})",
        "It is tried again.",
        NETWORK_SECONDS,
    ),
    Rule(r".", "image {image} cannot be pulled ({reported})", "It is tried again.", NETWORK_SECONDS),
)
_IMAGE_STATES: Mapping[str, tuple[str, str, float]] = {
    "InvalidImageName": ("{image!r} is not the name of an image", "Correct the image of the job.", 0.0),
    "ErrImageNeverPull": (
        "image {image} is not on the node, and may not be pulled",
        "Set another image_pull_policy, or load the image on the nodes.",
        CONFIGURATION_SECONDS,
    ),
    "SignatureValidationFailed": (
        "the signature of image {image} is not valid ({reported})",
        "",
        CONFIGURATION_SECONDS,
    ),
}


def registry_words(message: str) -> str:
    """The registry's response: the kubelet's message without the prefixes of the layers in between.

    >>> registry_words('rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/a/b:c": not found')
    'not found'
    """
    words = message.strip()
    while match := _PREFIXES.match(words):
        words = words[match.end() :].strip()
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


def why_no_image(reason: str, message: str, image: str) -> Why:
    """The sentence for a container that waits for its image, from its state (``ErrImagePull``) and its message."""
    words = registry_words(message)
    if reason in _IMAGE_STATES:
        sentence, advice, patience = _IMAGE_STATES[reason]
        return Why(sentence.format(image=image, reported=words), advice, patience)
    unknown = Why(f"image {image} cannot be pulled", "It is tried again.", NETWORK_SECONDS)
    return first_match(_PULLS, words, image=image) or unknown


# containers that the kubelet cannot create

_CONTAINERS: Rules = (
    Rule(
        r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) (?:[^/\s]+/)?(?P<name>\S+)",
        "the {kind} {name} has no key {key}",
        "Add the key, or correct its name in the job.",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r'secret "(?P<name>[^"]+)" not found',
        "the Secret {name} does not exist in its namespace",
        "Create it: kubectl create secret generic {name} ...",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r'configmap "(?P<name>[^"]+)" not found',
        "the ConfigMap {name} does not exist in its namespace",
        "Create it: kubectl create configmap {name} ...",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r"non-numeric user",
        "its image names its user, and Kubernetes needs a number to check that it is not root ({reported})",
        "Set platform_options.run_as_user to the number of that user: docker run --rm IMAGE id -u",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r"runAsNonRoot",
        "its image runs as root, which its pods may not ({reported})",
        "Set platform_options.run_as_user to a number other than 0.",
        CONFIGURATION_SECONDS,
    ),
)


def why_no_container(message: str) -> Why:
    """The sentence for a container that the kubelet cannot create."""
    unknown = Why(
        f"its container cannot start: {message.strip()}".strip(), "It is tried again.", NETWORK_SECONDS
    )
    return first_match(_CONTAINERS, message.strip()) or unknown


# pods that the API server rejects

CREATE_ERRORS = {"FailedCreate", "JobCreationFailed", "HeadlessServiceCreationFailed", "MPIJobFailed"}
"""Reasons of events of controllers that could not create a pod."""

_FORBIDDEN = re.compile(
    r"(?:Error creating: )?(?:pods|jobs\.batch) \"[^\"]*\" is forbidden: (?P<reported>.*)", re.DOTALL
)


def why_not_created(message: str) -> Why:
    """The sentence for an event of a controller that could not create a pod."""
    match = _FORBIDDEN.fullmatch(message.strip())
    reported = (match["reported"] if match else message.strip().removeprefix("Error creating: ")).strip()
    if found := refusal(reported):
        return found
    if match:
        return Why(f"the cluster refuses its pods: {reported}", "", CONFIGURATION_SECONDS)
    return Why(f"its pods could not be created: {reported}", "The controller tries again.")


# pods without a node

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
_NAMES = {"cpu": "CPUs", "ephemeral-storage": "local disk space", "pods": "places for pods"}

_SELECTOR = (
    "{lack} the labels that the job requires",
    "Compare platform_options.node_selector with: kubectl get nodes --show-labels",
)
_VOLUME = (
    "cannot use the job's volume",
    "A volume of one zone or node can be used only there: kubectl describe pvc",
)
_CORDONED = "An administrator keeps them free, often for maintenance: kubectl get nodes"
_NODE_REASONS: tuple[tuple[str, str, str], ...] = (
    ("Too many pods", "{have} as many pods as allowed", "It starts when other pods end."),
    ("node(s) were unschedulable", "{are} cordoned", _CORDONED),
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
    ("node(s) didn't have free ports", "{have} no free port of the host that the job needs", ""),
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

_SCHEDULERS: Rules = (
    Rule(
        r'\Apersistentvolumeclaim "(?P<name>[^"]+)" not found',
        "the PersistentVolumeClaim {name} does not exist in its namespace",
        "Create it, or correct its name in the job: kubectl get pvc",
    ),
    Rule(
        r"unbound immediate PersistentVolumeClaims",
        "its PersistentVolumeClaim is not bound to a volume",
        "See why with: kubectl describe pvc. Often the storage class is missing, or has no space.",
    ),
    Rule(r"no nodes available to schedule pods", "the cluster has no nodes"),
    Rule(
        r"scheduling gates|\ASchedulingGated\Z",
        "a scheduling gate holds it back",
        "Its owner must remove the gate; Kueue does so itself.",
    ),
    Rule(
        r"pod group is not ready|minMember|minAvailable",
        "its pods start together, and not all of them fit yet ({reported})",
    ),
    Rule(r".", "the scheduler reports: {reported}"),
)


def why_unscheduled(message: str) -> Why:
    """The sentence for a scheduler's message, from the condition PodScheduled or an event FailedScheduling.

    >>> why_unscheduled("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.").sentence
    '0/3 nodes have enough free nvidia.com/gpu'
    """
    match = _NODES.fullmatch(message.strip())
    whole = match["why"] if match else message
    parts = [_COUNTED.fullmatch(one) for one in re.split(r", (?=\d+ )", whole.strip())]
    if match is None or None in parts:
        unknown = Why("the scheduler has not considered it yet")
        return first_match(_SCHEDULERS, whole.strip().rstrip(".")) or unknown
    counted = [(int(one["count"]), one["why"].strip()) for one in parts if one]
    nodes = f"{match['fit']}/{match['all']} nodes"
    advice = _node_advice([why for _, why in counted], match["preemption"] or "")
    only = _INSUFFICIENT.fullmatch(counted[0][1]) if len(counted) == 1 else None
    if only:
        return Why(f"{nodes} have enough free {_NAMES.get(only['resource'], only['resource'])}", advice)
    return Why(f"{nodes} fit: " + ", ".join(_phrase(count, why) for count, why in counted), advice)


def _phrase(count: int, why: str) -> str:
    """The problem of ``count`` nodes: ``2 have too little free memory``."""
    lacking, taint = _INSUFFICIENT.fullmatch(why), _TAINT.fullmatch(why)
    if lacking:
        phrase = f"{{have}} too little free {_NAMES.get(lacking['resource'], lacking['resource'])}"
    elif taint:
        named = f" ({taint['taint'].strip().rstrip(':')})" if taint["taint"] else ""
        phrase = f"{{have}} a taint that the job does not tolerate{named}"
    else:
        known = (phrase for prefix, phrase, _ in _NODE_REASONS if why.startswith(prefix))
        phrase = next(known, why.replace("{", "(").replace("}", ")"))
    return f"{count} " + phrase.format(**{verb: one if count == 1 else verb for verb, one in _VERBS.items()})


def _node_advice(reasons: Sequence[str], preemption: str) -> str:
    """Advice for the first reason that the user can act on.

    ``preemption`` is the scheduler's message about pods that could be preempted: that does not help on small nodes.
    """
    for why in reasons:
        known = next((advice for prefix, _, advice in _NODE_REASONS if why.startswith(prefix)), "")
        if known:
            return known
    if any(_INSUFFICIENT.fullmatch(why) for why in reasons):
        if "No preemption victims" in preemption:
            return "Other pods use or reserve the rest: it starts when they end."
        if "Preemption is not helpful" in preemption:
            return "No node has that much, used or not: request less for each host, or other nodes."
        return "Other pods use the rest, or no node has that much: kubectl describe nodes"
    if any(_TAINT.fullmatch(why) for why in reasons):
        return "Set platform_options.tolerations if the job may run on tainted nodes: kubectl describe nodes"
    return ""


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


# Kueue

_UNUSED = re.compile(
    r"insufficient unused quota (?:in cohort )?for (?P<resource>\S+) in flavor (?P<flavor>\S+), "
    r"(?P<more>\S+) more needed"
)
_MAXIMUM = re.compile(
    r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>\S+), (?:.*?)"
    r"(?:maximum capacity \((?P<limits>[^)]*)\))"
)
_POD_SET = re.compile(r"couldn't assign flavors to pod set (?P<set>\S+): ")
_RESUMES = "It is in the queue again, and resumes from its last checkpoint."
_PREEMPTED = {
    "InClusterQueue": "of a higher priority in the same queue",
    "InCohortReclamation": "of the queue that had lent it the quota",
    "InCohortFairSharing": "of a queue that uses less than its share",
    "InCohortReclaimWhileBorrowing": "of a higher priority in another queue",
}
_STOPPED = ("its queue of Kueue was stopped", "It starts when an administrator resumes it.")
_EVICTIONS = {
    "PodsReadyTimeout": (
        "Kueue took back its quota, because its pods were not ready in time",
        "See why they were not with: kubectl get events",
    ),
    "ClusterQueueStopped": _STOPPED,
    "LocalQueueStopped": _STOPPED,
    "NodeFailures": ("Kueue took back its quota, because its nodes failed", _RESUMES),
}


def queue_of(workload: Object) -> str:
    return text(workload, "spec", "queueName")


def is_active(workload: Object) -> bool:
    """Whether Kueue may start the job, because it is not deactivated."""
    return part(workload, "spec", "active") is not False


def why_queued(workload: Object | None, queue: str) -> Why:
    """Why Kueue has not started a job, from its Workload, if that exists, and the queue in the job's label."""
    if workload is None:
        return Why(
            f"Kueue has not taken it into the queue {queue} yet",
            "If this lasts, Kueue does not run, or does not manage jobs of this kind: kubectl get localqueues",
        )
    if not is_active(workload):
        return deactivated(workload)
    reserved, evicted = condition(workload, "QuotaReserved"), holds(workload, "Evicted")
    if reserved is not None and reserved.get("status") == "True":
        return _checks(workload)
    reported = text(reserved, "message")
    if evicted and "couldn't assign" not in reported:
        return _evicted(workload)
    if reserved is None:
        return Why("Kueue has not considered it yet")
    why = _no_quota(reported, text(reserved, "reason"), queue_of(workload) or queue)
    return Why(why.sentence, why.advice, why.patience, when(reserved, "lastTransitionTime"))


def _no_quota(reported: str, reason: str, queue: str) -> Why:
    if preempting := re.search(r"Pending the preemption of (\d+) workload", reported):
        count = int(preempting[1])
        others = f"{count} other job{'s' * (count > 1)}"
        return Why(f"Kueue preempts {others} for it", "It starts when they have ended.")
    lacking = []
    for one in _UNUSED.finditer(reported):
        value = parse_quantity(one["more"])
        shown = one["more"] if value is None else show_quantity(value, one["resource"])
        lacking.append(f"{shown} {one['resource']} of flavor {one['flavor']}")
    if lacking:
        return Why(
            f"Kueue has too little free quota in the queue {queue}: {', '.join(lacking)} more needed",
            "It starts when other jobs of the queue end.",
        )
    beyond = _MAXIMUM.search(reported)
    if beyond or reason == "ExceedsMaxQuota":
        what = f" of {beyond['resource']} in flavor {beyond['flavor']} ({beyond['limits']})" if beyond else ""
        return Why(
            f"it requests more than the queue {queue} of Kueue ever has{what}",
            "Request fewer or smaller hosts, or use another queue.",
        )
    words = _POD_SET.sub("", reported).strip().rstrip(".")
    if "LocalQueue" in words and ("doesn't exist" in words or "missing" in words):
        return Why(
            f"the queue {queue} of Kueue does not exist in its namespace",
            "See the queues: kubectl get localqueues",
        )
    return Why(f"Kueue reports: {reported}" if words else "Kueue has not considered it yet")


def _checks(workload: Object) -> Why:
    """Why a job with quota is not admitted: it waits for admission checks, such as the provisioning of nodes."""
    waiting = [one for one in items(workload, "status", "admissionChecks") if one.get("state") != "Ready"]
    if not waiting:
        return Why("Kueue has reserved quota for it, and starts it")
    notes = [(text(one, "name"), text(one, "message")) for one in waiting]
    named = ", ".join(f"{name} ({message})" if message else name for name, message in notes)
    return Why(f"Kueue has reserved quota for it, and waits for a check: {named}")


def _evicted(workload: Object) -> Why:
    """Why Kueue took back the quota of a job that had started, and requeued it."""
    evicted, preempted = holds(workload, "Evicted"), holds(workload, "Preempted")
    reason, reported = text(evicted, "reason"), text(evicted, "message").rstrip(".")
    sentence, advice = _EVICTIONS.get(reason, (f"Kueue took back its quota ({reported or reason})", _RESUMES))
    if reason == "Preempted" or preempted:
        cause = _PREEMPTED.get(text(preempted, "reason"), "of a higher priority")
        sentence, advice = f"Kueue gave its quota to a job {cause}", _RESUMES
    return Why(sentence, advice, since=when(evicted, "lastTransitionTime"))


def deactivated(workload: Object) -> Why:
    """Why a job does not restart until a user activates it."""
    reported = text(holds(workload, "Evicted"), "message")
    why = reported.partition(" due to ")[2].rstrip(".")
    again = (
        f"Start it again with: kubectl patch workload {name_of(workload) or 'WORKLOAD'} --type merge "
        '-p \'{"spec": {"active": true}}\'. It resumes from its last checkpoint.'
    )
    if reached_time_limit(workload):
        return Why(f"Kueue ended it at its time limit ({why or reported})", again)
    return Why("Kueue has deactivated it" + (f": {why}" if why else ""), again)


def reached_time_limit(workload: Object) -> bool:
    evicted = holds(workload, "Evicted")
    in_words = "maximum execution time" in text(evicted, "message")
    return "MaximumExecutionTime" in text(evicted, "reason") or in_words
