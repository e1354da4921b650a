"""Tuning jobs as users of the SageMaker SDK write them. The code uses names that `capture` defines.

Each has its own name, because tuning jobs of one account must have different names.
"""

from __future__ import annotations

_RANGES = "{'lr':ContinuousParameter(0.001,0.1)}"
_METRICS = "[{'Name':'loss','Regex':'loss: ([0-9.]+)'}]"
_TORCH = "PyTorch(**BASE,**CPU,hyperparameters={'epochs':3,'lr':0.5})"
_PLAIN = "Estimator(IMAGE,ROLE,**CPU,hyperparameters={'epochs':3,'name':'x'})"


def _tuner(
    arguments: str = "", estimator: str = _TORCH, ranges: str = _RANGES, fit: str = "IN,job_name=J()"
) -> str:
    return (
        f"HyperparameterTuner({estimator},'loss',{ranges},{_METRICS},max_jobs=4,max_parallel_jobs=2,{arguments})"
        f".fit({fit},wait=False)"
    )


_CASES = {
    "plain": _tuner(estimator=_PLAIN),
    "plain_categories": _tuner(
        estimator=_PLAIN, ranges="{'opt':CategoricalParameter(['a','b']),'n':CategoricalParameter([1,2.5])}"
    ),
    "plain_source": _tuner(
        estimator="Estimator(IMAGE,ROLE,**CPU,entry_point='train.py',source_dir=SRC,hyperparameters={'a':'x'})",
        ranges="{'opt':CategoricalParameter(['a','b'])}",
    ),
    "plain_metadata": "HyperparameterTuner("
    f"{_PLAIN},'loss',{_RANGES},{_METRICS}).fit(IN,J(),True,wait=False)",
    "categories": _tuner(
        ranges="{'opt':CategoricalParameter(['a','b']),'n':CategoricalParameter([1,2.5,True]),"
        "'one':CategoricalParameter('x')}"
    ),
    "integers": _tuner(ranges="{'b':IntegerParameter(1,8,'Logarithmic'),'a':IntegerParameter(0,1)}"),
    "replaces_static": _tuner(
        ranges="{'lr':ContinuousParameter(1,2,'Linear'),'epochs':IntegerParameter(1,5)}"
    ),
    "random_seed": _tuner("strategy='Random',random_seed=7,max_runtime_in_seconds=7200"),
    "hyperband": _tuner(
        "strategy='Hyperband',strategy_config=StrategyConfig(HyperbandStrategyConfig(max_resource=10,min_resource=1))"
    ),
    "grid": _tuner("strategy='Grid'", ranges="{'opt':CategoricalParameter(['a','b'])}"),
    "criteria": _tuner(
        "completion_criteria_config=TuningJobCompletionCriteriaConfig(3,True,0.5),early_stopping_type='Auto'"
    ),
    "criteria_one": _tuner(
        "completion_criteria_config=TuningJobCompletionCriteriaConfig(complete_on_convergence=False)"
    ),
    "warm_start": _tuner(
        "warm_start_config=WarmStartConfig(WarmStartTypes.TRANSFER_LEARNING,parents={'earlier'})"
    ),
    "tags": _tuner(
        "tags=[{'Key':'a','Value':'b'}]", estimator="PyTorch(**BASE,**CPU,tags=[{'Key':'c','Value':'d'}])"
    ),
    "tags_of_the_estimator": _tuner(estimator="PyTorch(**BASE,**CPU,tags={'c':'d'})"),
    "autotune_plain": _tuner(
        "autotune=True,hyperparameters_to_keep_static=['epochs']", estimator=_PLAIN, ranges="None"
    ),
    "autotune_plain_ranges": _tuner("autotune=True", estimator=_PLAIN),
    "options": _tuner(
        estimator=(
            "PyTorch(**BASE,**P4,subnets=['s'],security_group_ids=['g'],volume_kms_key='k',output_kms_key='o',"
            "checkpoint_s3_uri='s3://my-data/c',checkpoint_local_path='/opt/ml/c',environment={'A':'1'},"
            "max_retry_attempts=2,encrypt_inter_container_traffic=True,enable_network_isolation=True,"
            "output_path='s3://my-data/out',model_uri='s3://my-data/m.tar.gz',disable_profiler=True,"
            "distribution={'torch_distributed':{'enabled':True}})"
        )
    ),
    "output_uncompressed": _tuner(estimator="PyTorch(**BASE,**CPU,disable_output_compression=True)"),
    "tensorflow": _tuner(
        estimator=(
            "TensorFlow(entry_point='train.py',source_dir=SRC,role=ROLE,framework_version='2.16.2',"
            "py_version='py310',**CPU)"
        )
    ),
    "huggingface": _tuner(
        estimator=(
            "HuggingFace('py311','train.py',transformers_version='4.49.0',pytorch_version='2.5.1',source_dir=SRC,"
            "role=ROLE,**P4)"
        )
    ),
    "input_mode": _tuner(fit="TrainingInput('s3://my-data/x',input_mode='FastFile'),job_name=J()"),
    "instances": f"t=HyperparameterTuner({_TORCH},'loss',{_RANGES},{_METRICS})\n"
    "t.override_resource_config([InstanceConfig(1,'ml.m5.xlarge',10),InstanceConfig(2,'ml.c5.xlarge')])\n"
    "t.fit(IN,J(),wait=False)",
    "several": (
        "HyperparameterTuner.create({'b':" + _TORCH + ",'a':" + _PLAIN + "},{'a':'loss','b':'acc'},"
        "{'a':{'lr':ContinuousParameter(0.1,0.2)},'b':{'opt':CategoricalParameter(['x','y'])}},"
        "{'a':" + _METRICS + "},objective_type='Minimize',max_jobs=3)"
        ".fit({'a':IN,'b':'s3://my-data/b'},job_name=J(),include_cls_metadata={},wait=False)"
    ),
    "named": (
        f"HyperparameterTuner({_TORCH},'loss',{_RANGES},estimator_name='one')"
        ".fit({'one':IN},J(),{},wait=False)"
    ),
    "nothing_to_tune": _tuner(ranges="{}"),
    "kept_without_autotune": _tuner("hyperparameters_to_keep_static=['epochs']"),
    "wait_missing": _tuner(estimator="PyTorch(**BASE,**CPU,use_spot_instances=True)"),
}

TUNING = {name: code.replace("J()", repr(name.replace("_", "-"))) for name, code in _CASES.items()}
