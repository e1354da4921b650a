"""The models of SageMaker JumpStart for training: their descriptions are JSON in an S3 bucket of AWS in each region."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from cloudtrain.aws.registry import instance_family
from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.session import Session

SCOPE = "training"
_MANIFEST = "models_manifest.json"


class Model:
    """One version of a model in one region.

    Raises:
        InvalidJob: there is no such model, or it cannot be trained.
        StorageError: the region has no JumpStart, or S3 denies access.
    """

    def __init__(
        self, model_id: str | None, version: str | None, region: str | None, session: Any, scope: str | None
    ) -> None:
        if not model_id or not version:
            raise InvalidJob(
                "model_id and model_version name a model of JumpStart",
                hint="For example: model_id='huggingface-tc-bert-base-cased', model_version='*'.",
            )
        if scope != SCOPE:
            raise InvalidJob(
                f"scope: cloudtrain has the URIs for 'training', not for {scope!r}",
                hint="For inference, use the SageMaker SDK, version 2 (pip install 'sagemaker<3').",
            )
        own = session if isinstance(session, Session) else Session(getattr(session, "boto_session", session))
        self.region = region or own.boto_region_name
        self.bucket = f"jumpstart-cache-prod-{self.region}"
        self.description = self._read(own, _spec_key(_manifest(own, self.bucket), model_id, version))
        if not self.description.get("training_supported"):
            raise InvalidJob(f"model_id: {model_id} of JumpStart cannot be trained")

    def _read(self, session: Session, key: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(session.read_s3_file(self.bucket, key))
        return found

    def script_uri(self) -> str:
        """The archive with the script."""
        get = self.description.get
        return f"s3://{self.bucket}/{get('training_prepacked_script_key') or get('training_script_key')}"

    def model_uri(self, instance_type: str | None) -> str:
        """The archive with the pretrained model."""
        is_gated = self.description.get("gated_bucket")
        bucket = self.bucket.replace("cache", "private-cache") if is_gated else self.bucket
        key = (
            self._property(instance_type, "training_artifact_uri")
            or self.description["training_artifact_key"]
        )
        return f"s3://{bucket}/{key}"

    def image_uri(self, instance_type: str | None) -> str:
        """The image for an instance type. Raises InvalidJob if there is none."""
        variants = self.description.get("training_instance_type_variants") or {}
        alias = self._property(instance_type, "image_uri", "regional_properties") or ""
        found = (variants.get("regional_aliases") or {}).get(self.region, {}).get(alias.removeprefix("$"))
        if not found:
            raise InvalidJob(
                f"instance_type: the model has no image for {instance_type} in {self.region}",
                hint=f"Choose another instance type, of one of: {', '.join(variants.get('variants', {}))}.",
            )
        return str(found)

    def hyperparameters(self, instance_type: str | None, *, of_container: bool) -> dict[str, str]:
        """The defaults, as strings."""
        specific = self._property(instance_type, "hyperparameters") or []
        scopes = ("algorithm", "container") if of_container else ("algorithm",)
        general = [one for one in self.description.get("hyperparameters", []) if one["scope"] in scopes]
        return {one["name"]: str(one["default"]) for one in [*general, *specific]}

    def _property(self, instance_type: str | None, name: str, kind: str = "properties") -> Any:
        """A property of the instance type, or of its family."""
        variants = (self.description.get("training_instance_type_variants") or {}).get("variants") or {}
        for variant in (instance_type or "", instance_family(instance_type or "")):
            found = variants.get(variant, {}).get(kind, {}).get(name)
            if found:
                return found
        return None


def _spec_key(manifest: tuple[tuple[str, str, str], ...], model_id: str, version: str) -> str:
    """The key of the description of the newest version that matches."""
    versions = {Version(one): key for name, one, key in manifest if name == model_id}
    if not versions:
        raise InvalidJob(
            f"model_id: JumpStart has no model {model_id!r}",
            hint=nearest(model_id, [name for name, _, _ in manifest]),
        )
    try:
        matching = versions if version == "*" else list(SpecifierSet(f"=={version}").filter(versions))
    except InvalidSpecifier:
        matching = []
    if not matching:
        known = ", ".join(str(one) for one in sorted(versions))
        raise InvalidJob(f"model_version: {model_id} has no version {version}", hint=f"It has: {known}.")
    return versions[max(matching)]


@lru_cache(maxsize=8)
def _manifest(session: Session, bucket: str) -> tuple[tuple[str, str, str], ...]:
    """The identifier, the version and the key of the description of each model."""
    found = json.loads(session.read_s3_file(bucket, _MANIFEST))
    return tuple((one["model_id"], one["version"], one["spec_key"]) for one in found)
