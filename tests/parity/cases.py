"""Jobs as users of the SageMaker SDK write them, by topic.

The code uses names that `capture` defines: ``BASE`` and ``P4`` are arguments, ``go`` starts a job.
"""

from __future__ import annotations

from parity.algorithm_cases import ALGORITHMS
from parity.debugger_cases import COMPILED, RULES
from parity.tuning_cases import TUNING

_TF = "TensorFlow(entry_point='train.py',source_dir=SRC,role=ROLE,framework_version='2.16.2',py_version='py310',**P4"
_HF = "HuggingFace(entry_point='train.py',source_dir=SRC,role=ROLE,py_version='py311',"
_MX = "MXNet('train.py',source_dir=SRC,role=ROLE,framework_version='1.9.0',py_version='py38',**P4"
_GROUPS = "g1=InstanceGroup('g1','ml.p4d.24xlarge',2); g2=InstanceGroup('g2','ml.c5.18xlarge',1)\n"


def _torch(arguments: str, fit: str = "") -> str:
    return f"go(PyTorch(**BASE,**P4,{arguments}){fit})"


def _plain(arguments: str) -> str:
    return f"go(Estimator(image_uri=IMAGE,role=ROLE,**CPU,{arguments}))"


def _version(version: str, python: str, kind: str = "ml.p4d.24xlarge", more: str = "") -> str:
    return (
        f"go(PyTorch('train.py',framework_version='{version}',py_version='{python}',source_dir=SRC,role=ROLE,"
        f"instance_count=2,instance_type='{kind}'{more}))"
    )


def _region(region: str, of: str = "PyTorch(**BASE,**CPU,") -> str:
    return f"go({of}sagemaker_session=session('{region}')))"


def _tensorflow(version: str, python: str, kind: str, more: str = "") -> str:
    return (
        f"go(TensorFlow(py_version='{python}',framework_version='{version}',entry_point='train.py',source_dir=SRC,"
        f"role=ROLE,instance_count=1,instance_type='{kind}'{more}))"
    )


def _smp(version: str, python: str, kind: str) -> str:
    library = "'smdistributed':{'modelparallel':{'enabled':True,'parameters':{'a':1}}}"
    distribution = f"{{'torch_distributed':{{'enabled':True}},{library}}}"
    return _version(version, python, kind, f",distribution={distribution}")


DISTRIBUTIONS = {
    "mpi_off": _torch("distribution={'mpi':{'enabled':False}}"),
    "mpi_processes": _torch("distribution={'mpi':{'enabled':True,'processes_per_host':4}}"),
    "torch_distributed_off": _torch("distribution={'torch_distributed':{'enabled':False}}"),
    "torch_distributed_cpu": "go(PyTorch(**BASE,**CPU,distribution={'torch_distributed':{'enabled':True}}))",
    "torch_distributed_g5": _version(
        "2.8.0", "py312", "ml.g5.12xlarge", ",distribution={'torch_distributed':{'enabled':True}}"
    ),
    "torch_distributed_image": _torch("image_uri=IMAGE,distribution={'torch_distributed':{'enabled':True}}"),
    "torch_distributed_sh": (
        "go(PyTorch(**dict(BASE,entry_point='run.sh',source_dir='SRC_SH'),**P4,"
        "distribution={'torch_distributed':{'enabled':True}}))"
    ),
    "torch_distributed_trn": (
        "go(PyTorch('train.py',framework_version='1.11.0',py_version='py38',source_dir=SRC,role=ROLE,"
        "instance_count=2,instance_type='ml.trn1.32xlarge',distribution={'torch_distributed':{'enabled':True}}))"
    ),
    "mpi_trn": _version("1.11.0", "py38", "ml.trn1.32xlarge", ",distribution={'mpi':{'enabled':True}}"),
    "pytorchddp": _version(
        "2.0.1", "py310", "ml.p4d.24xlarge", ",distribution={'pytorchddp':{'enabled':True}}"
    ),
    "pytorchddp_options": _version(
        "1.12.1",
        "py38",
        "ml.p3.16xlarge",
        ",distribution={'pytorchddp':{'enabled':True,'custom_mpi_options':'-x A=1'}}",
    ),
    "pytorchddp_image": _torch("image_uri=IMAGE,distribution={'pytorchddp':{'enabled':True}}"),
    "smddp": _version(
        "2.2.0",
        "py310",
        "ml.p4d.24xlarge",
        ",distribution={'smdistributed':{'dataparallel':{'enabled':True}}}",
    ),
    "smddp_options": _version(
        "2.0.1",
        "py310",
        "ml.p4de.24xlarge",
        ",distribution={'smdistributed':{'dataparallel':{'enabled':True,'custom_mpi_options':'-verbose'}}}",
    ),
    "smddp_old": _torch("distribution={'smdistributed':{'dataparallel':{'enabled':True}}}"),
    "smddp_p5": _version(
        "2.2.0",
        "py310",
        "ml.p5.48xlarge",
        ",distribution={'smdistributed':{'dataparallel':{'enabled':True}}}",
    ),
    "smddp_torchrun": _version(
        "2.2.0",
        "py310",
        "ml.p4d.24xlarge",
        ",distribution={'torch_distributed':{'enabled':True},'smdistributed':{'dataparallel':{'enabled':True}}}",
    ),
    "smddp_tf_old_p4d": _tensorflow(
        "2.3.1", "py37", "ml.p3.16xlarge", ",distribution={'smdistributed':{'dataparallel':{'enabled':True}}}"
    ),
    "smp_mpi": _version(
        "1.13.1",
        "py39",
        "ml.p4d.24xlarge",
        ",distribution={'smdistributed':{'modelparallel':{'enabled':True,'parameters':{'partitions':2,"
        "'microbatches':4,'pipeline':'interleaved','ddp':True}}},"
        "'mpi':{'enabled':True,'processes_per_host':8,'custom_mpi_options':'-x B=2'}}",
    ),
    "smp_no_parameters": _version(
        "1.13.1",
        "py39",
        "ml.p4d.24xlarge",
        ",distribution={'smdistributed':{'modelparallel':{'enabled':True}},'mpi':{'enabled':True}}",
    ),
    "smp_torchrun_2.2": _smp("2.2.0", "py310", "ml.p4d.24xlarge"),
    "smp_torchrun_2.3.1": _smp("2.3.1", "py311", "ml.p5.48xlarge"),
    "smp_torchrun_2.0.1": _smp("2.0.1", "py310", "ml.p4d.24xlarge"),
    "smp_torchrun_2.0.1_p5": _smp("2.0.1", "py310", "ml.p5.48xlarge"),
    "both_libraries": _version(
        "2.0.1",
        "py310",
        "ml.p4d.24xlarge",
        ",distribution={'smdistributed':{'dataparallel':{'enabled':True},'modelparallel':{'enabled':True}}}",
    ),
    "torch_parameter_server": _torch("distribution={'parameter_server':{'enabled':True}}"),
    "tf_parameter_server": f"go({_TF},distribution={{'parameter_server':{{'enabled':True}}}}))",
    "tf_mwms": f"go({_TF},distribution={{'multi_worker_mirrored_strategy':{{'enabled':True}}}}))",
    "tf_mwms_off": f"go({_TF},distribution={{'multi_worker_mirrored_strategy':{{'enabled':False}}}}))",
    "hf_tf_mpi": (
        f"go({_HF.replace('py311', 'py38')}transformers_version='4.17.0',tensorflow_version='2.6.3',**P4,"
        "distribution={'mpi':{'enabled':True}}))"
    ),
    "tf_mwms_old": _tensorflow(
        "2.8.0", "py39", "ml.p3.2xlarge", ",distribution={'multi_worker_mirrored_strategy':{'enabled':True}}"
    ),
    "tf_torch_distributed": f"go({_TF},distribution={{'torch_distributed':{{'enabled':True}}}}))",
    "mx_torch_distributed": f"go({_MX},distribution={{'torch_distributed':{{'enabled':True}}}}))",
    "torch_mwms": _torch("distribution={'multi_worker_mirrored_strategy':{'enabled':True}}"),
    "hf_pytorchddp": (
        "go(HuggingFace('py310','train.py',transformers_version='4.28.1',pytorch_version='2.0.0',source_dir=SRC,"
        "role=ROLE,**P4,distribution={'pytorchddp':{'enabled':True}}))"
    ),
    "hf_smddp": (
        "go(HuggingFace('py310','train.py',transformers_version='4.28.1',pytorch_version='2.0.0',source_dir=SRC,"
        "role=ROLE,**P4,distribution={'smdistributed':{'dataparallel':{'enabled':True}}}))"
    ),
    "hf_smp": (
        "go(HuggingFace('py38','train.py',transformers_version='4.17.0',pytorch_version='1.10.2',source_dir=SRC,"
        "role=ROLE,**P4,distribution={'smdistributed':{'modelparallel':{'enabled':True,"
        "'parameters':{'partitions':2}}},'mpi':{'enabled':True,'processes_per_host':8}}))"
    ),
    "mx_parameter_server": f"go({_MX},distribution={{'parameter_server':{{'enabled':True}}}}))",
    "mx_mpi": f"go({_MX},distribution={{'mpi':{{'enabled':True,'processes_per_host':8,'custom_mpi_options':'-x'}}}}))",
    "mx_mpi_min": f"go({_MX},distribution={{'mpi':{{'enabled':True}}}}))",
    "mx_mpi_no_processes": f"go({_MX},distribution={{'mpi':{{'enabled':True,'custom_mpi_options':'-x A'}}}}))",
    "groups_one_mpi": (
        "g=InstanceGroup('g','ml.p4d.24xlarge',2)\n"
        "go(PyTorch(**BASE,instance_groups=[g],distribution={'mpi':{'enabled':True}}))"
    ),
    "groups_torch_distributed": (
        _GROUPS + "go(PyTorch(**BASE,instance_groups=[g1,g2],"
        "distribution={'torch_distributed':{'enabled':True},'instance_groups':[g1]}))"
    ),
    "groups_smddp": (
        _GROUPS + "go(PyTorch('train.py','2.0.1','py310',SRC,role=ROLE,instance_groups=[g1,g2],"
        "distribution={'smdistributed':{'dataparallel':{'enabled':True}},'instance_groups':[g1]}))"
    ),
    "groups_unnamed": _GROUPS
    + "go(PyTorch(**BASE,instance_groups=[g1,g2],distribution={'mpi':{'enabled':True}}))",
    "groups_two_named": (
        _GROUPS + "go(PyTorch(**BASE,instance_groups=[g1,g2],"
        "distribution={'mpi':{'enabled':True},'instance_groups':[g1,g2]}))"
    ),
    "groups_parameter_server": (
        _GROUPS + "go(TensorFlow(entry_point='train.py',source_dir=SRC,role=ROLE,framework_version='2.16.2',"
        "py_version='py310',instance_groups=[g1,g2],"
        "distribution={'parameter_server':{'enabled':True},'instance_groups':[g1]}))"
    ),
    "groups_cpu_first": (
        "g1=InstanceGroup('c','ml.c5.xlarge',1); g2=InstanceGroup('g','ml.g5.xlarge',1)\n"
        "go(PyTorch(**BASE,instance_groups=[g1,g2]))"
    ),
    "unknown_distribution": _torch("distribution={'hovorod':{'enabled':True}}"),
}

IMAGES = {
    "image_in_framework": _torch("image_uri=IMAGE"),
    "image_without_version": "go(PyTorch('train.py',image_uri=IMAGE,source_dir=SRC,role=ROLE,**P4))",
    "no_version": "go(PyTorch('train.py',source_dir=SRC,role=ROLE,**P4))",
    "short_version": _version("2.5", "py311"),
    "torch_2.8": _version("2.8.0", "py312", "ml.c5.xlarge"),
    "torch_1.13": _version("1.13.1", "py39", "ml.g4dn.xlarge"),
    "torch_1.2_py2": _version("1.2.0", "py2", "ml.p3.2xlarge"),
    "torch_1.1": _version("1.1.0", "py3", "ml.m5.xlarge"),
    "torch_0.4_py2": _version("0.4.0", "py2", "ml.p2.xlarge"),
    "torch_1.6_p4d": _version("1.6.0", "py36", "ml.p4d.24xlarge"),
    "torch_1.6_p3": _version("1.6", "py3", "ml.p3.2xlarge"),
    "torch_newer": _version("2.99.0", "py313"),
    "torch_trn": _version("1.11", "py38", "ml.trn1.2xlarge"),
    "tf_1.12_py2": _tensorflow("1.12.0", "py2", "ml.m5.xlarge"),
    "tf_1.13_py2": _tensorflow("1.13.1", "py2", "ml.m5.xlarge"),
    "tf_1.13_py3": _tensorflow("1.13.1", "py3", "ml.p3.2xlarge"),
    "tf_1.13_short_py2": _tensorflow("1.13", "py2", "ml.p3.2xlarge"),
    "tf_1.10": _tensorflow("1.10.0", "py2", "ml.m5.xlarge"),
    "tf_1.15_p4d": _tensorflow("1.15.5", "py37", "ml.p4d.24xlarge"),
    "tf_1.14": _tensorflow("1.14.0", "py3", "ml.m5.xlarge"),
    "tf_2.19": _tensorflow("2.19.0", "py312", "ml.g6.xlarge"),
    "tf_2.13_cpu": _tensorflow("2.13", "py310", "ml.c6i.xlarge"),
    "tf_newer": _tensorflow("2.99", "py313", "ml.c6i.xlarge"),
    "hf_tf": (
        "go(HuggingFace(py_version='py38',entry_point='train.py',transformers_version='4.17',tensorflow_version='2.6',"
        "source_dir=SRC,role=ROLE,**P4))"
    ),
    "hf_4.4": (
        "go(HuggingFace('py36','train.py','4.4',pytorch_version='1.6',source_dir=SRC,role=ROLE,instance_count=1,"
        "instance_type='ml.p3.2xlarge'))"
    ),
    "hf_4.10": (
        "go(HuggingFace('py38','train.py','4.10.2',pytorch_version='1.9.0',source_dir=SRC,role=ROLE,**P4))"
    ),
    "hf_4.56": f"go({_HF.replace('py311', 'py312')}transformers_version='4.56.2',pytorch_version='2.8.0',**P4))",
    "hf_short": f"go({_HF}transformers_version='4.46',pytorch_version='2.3',**P4))",
    "hf_cpu": f"go({_HF}transformers_version='4.49.0',pytorch_version='2.5.1',**CPU))",
    "hf_both": (
        f"go({_HF}transformers_version='4.49.0',pytorch_version='2.5.1',tensorflow_version='2.6.3',**P4))"
    ),
    "hf_image": "go(HuggingFace('py311','train.py',image_uri=IMAGE,source_dir=SRC,role=ROLE,**P4))",
    "mx_1.9": f"go({_MX}))",
    "mx_1.4.1_py2": (
        "go(MXNet('train.py','1.4.1','py2',SRC,role=ROLE,instance_count=1,instance_type='ml.m5.xlarge'))"
    ),
    "mx_1.4.1_py3": (
        "go(MXNet('train.py','1.4.1','py3',SRC,role=ROLE,instance_count=1,instance_type='ml.m5.xlarge'))"
    ),
    "mx_1.4_py3": "go(MXNet('train.py','1.4','py3',SRC,role=ROLE,instance_count=1,instance_type='ml.m5.xlarge'))",
    "mx_1.3": "go(MXNet('train.py','1.3.0','py3',SRC,role=ROLE,instance_count=1,instance_type='ml.p3.2xlarge'))",
    "mx_1.8_p4d": "go(MXNet('train.py','1.8.0','py37',SRC,role=ROLE,**P4))",
    **{
        f"region_{region}": _region(region)
        for region in (
            *("eu-west-1", "ap-east-1", "cn-north-1", "cn-northwest-1", "us-gov-west-1", "us-gov-east-1"),
            *("me-south-1", "il-central-1", "ap-southeast-5", "mx-central-1"),
        )
    },
    "region_legacy": (
        "go(PyTorch('train.py','1.0.0','py3',SRC,role=ROLE,**CPU,sagemaker_session=session('eu-south-1')))"
    ),
}

ESTIMATORS = {
    "plain_lists": _plain("hyperparameters={'l':[1,'x'],'t':True,'n':None,'f':1e-7}"),
    "plain_positional": (
        "go(Estimator(IMAGE,ROLE,2,'ml.m5.xlarge',600,50,'k1',3600,'Pipe','s3://my-data/out','k2','my-base'),"
        "job_name=None)"
    ),
    "plain_entry_only": (
        "go(Estimator(image_uri=IMAGE,role=ROLE,**CPU,entry_point='SRC/train.py',hyperparameters={'a':'b'}))"
    ),
    "plain_set_later": (
        "e=Estimator(image_uri=IMAGE,role=ROLE,**CPU,hyperparameters={'a':1}); e.set_hyperparameters(b=2,c='x'); go(e)"
    ),
    "plain_source_set_later": (
        "e=Estimator(image_uri=IMAGE,role=ROLE,**CPU,entry_point='train.py',source_dir=SRC)\n"
        "e.set_hyperparameters(b=2,c='x'); go(e)"
    ),
    "plain_arguments_only": _plain("container_arguments=['--a']"),
    "plain_no_inputs": "go(Estimator(image_uri=IMAGE,role=ROLE,**CPU),None)",
    "plain_metrics": (
        "go(Estimator(image_uri=IMAGE,role=ROLE,**CPU,enable_sagemaker_metrics=True,"
        "metric_definitions=[{'Name':'loss','Regex':'loss=(.*?);'}]))"
    ),
    "plain_digest": (
        "go(Estimator(image_uri='123456789012.dkr.ecr.us-east-1.amazonaws.com/team/my-image:1.0',role=ROLE,**CPU),"
        "job_name=None)"
    ),
    "plain_repository_mode": _plain("training_repository_access_mode='Platform'"),
    "set_hyperparameters": "e=PyTorch(**BASE,**P4,hyperparameters={'a':1}); e.set_hyperparameters(b='x',c=None); go(e)",
    "metrics_off": _torch("enable_sagemaker_metrics=False"),
    "metrics_old": _version("1.2.0", "py3", "ml.m5.xlarge"),
    "log_level": _torch("container_log_level=10"),
    "old_names": (
        "go(PyTorch(**BASE,train_instance_count=1,train_instance_type='ml.m5.xlarge',train_max_run=60,"
        "train_volume_size=10,train_volume_kms_key='k'))"
    ),
    "old_spot_names": _torch("train_use_spot_instances=True,train_max_run=60,train_max_wait=120"),
    "old_distributions": f"go({_TF},distributions={{'parameter_server':{{'enabled':True}}}}))",
    "old_image_name": "go(Estimator(IMAGE,ROLE,train_instance_count=1,train_instance_type='ml.m5.xlarge'))",
    "role_missing": "go(PyTorch('train.py','2.5.1','py311',SRC,**P4))",
    "tf_model_dir": f"go({_TF},model_dir='s3://my-data/models'))",
    "tf_model_dir_off": f"go({_TF},model_dir=False))",
    "tf_output_path": f"go({_TF},output_path='s3://my-data/out'))",
    "tf_output_path_slash": f"go({_TF},output_path='s3://my-data/out/'))",
    "tf_image": "go(TensorFlow(image_uri=IMAGE,entry_point='train.py',source_dir=SRC,role=ROLE,**P4))",
    "tf_hyperparameters": f"go({_TF},hyperparameters={{'a':[1],'b':'s'}}))",
    "mx_hyperparameters": f"go({_MX},hyperparameters={{'a':[1],'b':'s'}}))",
    "s3_source": "go(PyTorch('train.py','2.5.1','py311','s3://my-data/code/sourcedir.tar.gz',role=ROLE,**P4))",
    "base_name_tf": f"go({_TF},base_job_name='exp'),job_name=None)",
    "name_tf": f"go({_TF}),job_name=None)",
    "name_hf": f"go({_HF}transformers_version='4.49.0',pytorch_version='2.5.1',**P4),job_name=None)",
    "name_image": _torch("image_uri=IMAGE", ",job_name=None"),
}

OPTIONS = {
    "spot_retries": _torch("use_spot_instances=True,max_run=60,max_wait=60,max_retry_attempts=3"),
    "spot_no_wait": _torch("use_spot_instances=True"),
    "retries": _torch("max_retry_attempts=1"),
    "warm_pool_off": _torch("keep_alive_period_in_seconds=0,volume_size=0"),
    "warm_pool_volume": _torch("keep_alive_period_in_seconds=60,volume_size=200"),
    "vpc": _torch("subnets=['subnet-a','subnet-b'],security_group_ids=['sg-1','sg-2']"),
    "vpc_half": _torch("subnets=['subnet-a']"),
    "isolation": _torch("enable_network_isolation=True"),
    "isolation_no_inputs": _torch("enable_network_isolation=True", ",None"),
    "isolation_model": _torch("enable_network_isolation=True,model_uri='s3://my-data/m.tar.gz'"),
    "isolation_plain": "go(Estimator(image_uri=IMAGE,role=ROLE,**CPU,enable_network_isolation=True))",
    "isolation_estimator": (
        "go(Estimator(image_uri=IMAGE,role=ROLE,**CPU,enable_network_isolation=True,entry_point='train.py',source_dir=SRC))"
    ),
    "encrypt": _torch("encrypt_inter_container_traffic=True"),
    "encrypt_off": _torch("encrypt_inter_container_traffic=False,enable_network_isolation=False"),
    "kms_output": _torch("output_kms_key='k1',output_path='s3://my-data/out'"),
    "kms_nvme": _torch("volume_kms_key='k2'").replace(
        "P4", "dict(instance_count=1,instance_type='ml.g5.xlarge')"
    ),
    "tags_list": _torch("tags=[{'Key':'a','Value':'b'}]"),
    "tags_dict": _torch("tags={'a':'b','c':'d'}"),
    "remote_debug": _torch("enable_remote_debug=True"),
    "remote_debug_off": _torch("enable_remote_debug=False"),
    "session_chaining": _torch("enable_session_tag_chaining=True"),
    "infra_check": _torch("enable_infra_check=True"),
    "infra_check_off": _torch("enable_infra_check=False"),
    "placement": _torch(
        "instance_placement_config={'EnableMultipleJobs':True,'PlacementSpecifications':[{'UltraServerId':'u','InstanceCount':2}]}"
    ),
    "metric_definitions": _torch(
        "metric_definitions=[{'Name':'a','Regex':'a=([0-9]+)'},{'Name':'b','Regex':'b=(.*)'}]"
    ),
    "environment_secret": _torch("environment={'WANDB_API_KEY':'s3cret','A':'1'}"),
    "experiment": _torch("", ",experiment_config={'ExperimentName':'e','TrialName':'t','RunName':'r'}"),
    "checkpoint_local": _torch("checkpoint_s3_uri='s3://my-data/c',checkpoint_local_path='/opt/ml/c'"),
    "checkpoint_local_only": _torch("checkpoint_local_path='/opt/ml/c'"),
    "output_path": _torch("output_path='s3://my-data/out'"),
    "code_and_output": _torch("output_path='s3://my-data/out',code_location='s3://my-data/code/'"),
    "input_mode_pipe": _torch("input_mode='Pipe'"),
    "model_channel": _torch("model_uri='s3://my-data/m/',model_channel_name='pretrained'"),
    "model_duplicate": _torch("model_uri='s3://my-data/m/'", ",{'model':'s3://my-data/x'}"),
    "output_uncompressed": _torch("disable_output_compression=True,output_kms_key='k'"),
    "tensorboard": _torch("tensorboard_output_config=TensorBoardOutputConfig('s3://my-data/tb')"),
    "hook": _torch("debugger_hook_config=DebuggerHookConfig()"),
    "hook_on": _torch("debugger_hook_config=True"),
    "hook_full": _torch(
        "debugger_hook_config=DebuggerHookConfig('s3://my-data/d','/opt/ml/d',{'save_interval':'10'},"
        "[CollectionConfig('weights',{'save_interval':'5'})])"
    ),
    "hook_collection": _torch(
        "debugger_hook_config=DebuggerHookConfig(collection_configs=[CollectionConfig('losses')])"
    ),
    "hook_off": _torch("debugger_hook_config=False"),
    "hook_gov": _region("us-gov-west-1", "PyTorch(**BASE,**CPU,debugger_hook_config=DebuggerHookConfig(),"),
    "profiler": _torch("profiler_config=ProfilerConfig()"),
    "profiler_full": _torch("profiler_config=ProfilerConfig('s3://my-data/p',500)"),
    "profiler_named": _torch("profiler_config=ProfilerConfig(system_monitor_interval_millis=1000)"),
    "profiler_disabled": _torch("profiler_config=ProfilerConfig(disable_profiler=True)"),
    "profiler_gpu": _torch("profiler_config=ProfilerConfig(profile_params=Profiler())"),
    "profiler_gpu_named": _torch(
        "profiler_config=ProfilerConfig('s3://my-data/p',profile_params=Profiler(cpu_profiling_duration=60))"
    ),
    "profiler_off": _torch("disable_profiler=True"),
    "profiler_contradiction": _torch("disable_profiler=True,profiler_config=ProfilerConfig()"),
    "groups_warm_pool": (
        _GROUPS
        + "go(PyTorch(**BASE,instance_groups=[g1,g2],keep_alive_period_in_seconds=60,volume_kms_key='k'))"
    ),
    "plan": _torch("training_plan='arn:aws:sagemaker:us-east-1:123456789012:training-plan/tp',max_run=60"),
}

INPUTS = {
    "string": _torch("", ",'s3://my-data/train'"),
    "one": _torch("", ",TrainingInput('s3://my-data/train')"),
    "one_mode": _torch("", ",TrainingInput('s3://my-data/train',input_mode='FastFile')"),
    "none": _torch("", ",None"),
    "positional": _torch(
        "",
        ",{'t':TrainingInput('s3://my-data/x','ShardedByS3Key','Gzip','text/csv','RecordIO','ManifestFile')}",
    ),
    "augmented": _torch(
        "",
        ",{'t':TrainingInput('s3://my-data/x.manifest',s3_data_type='AugmentedManifestFile',"
        "attribute_names=['source-ref','label'],input_mode='Pipe',record_wrapping='RecordIO')}",
    ),
    "target_attribute": _torch("", ",{'t':TrainingInput('s3://my-data/x.csv',target_attribute_name='y')}"),
    "target_and_distribution": _torch(
        "", ",{'t':TrainingInput('s3://my-data/x.csv','FullyReplicated',target_attribute_name='y')}"
    ),
    "uncompressed": _torch(
        "", ",{'t':TrainingInput('s3://my-data/x',compression='None',record_wrapping='None')}"
    ),
    "shuffled": _torch("", ",{'t':TrainingInput('s3://my-data/x',shuffle_config=ShuffleConfig(1))}"),
    "groups": (
        _GROUPS
        + "go(PyTorch(**BASE,instance_groups=[g1,g2]),{'a':TrainingInput('s3://my-data/a',instance_groups=['g1']),"
        "'b':TrainingInput('s3://my-data/b',instance_groups=['g2'])})"
    ),
    "fsx": _torch("", ",FileSystemInput('fs-0123456789abcdef0','FSxLustre','/fsx/d','rw')"),
    "efs_named": _torch(
        "",
        ",{'t':FileSystemInput(file_system_id='fs-0123456789abcdef0',file_system_type='EFS',directory_path='/d'),"
        "'v':'s3://my-data/v'}",
    ),
    "efs_bad_type": _torch("", ",{'t':FileSystemInput('fs-0123456789abcdef0','NFS','/d')}"),
    "not_a_uri": _torch("", ",{'t':'my-data/train'}"),
    "local_file": _torch("", ",{'t':'file:///etc/hostname'}"),
    "model_access": _torch(
        "", ",{'t':TrainingInput('s3://my-data/x',model_access_config={'AcceptEula':True})}"
    ),
}

CASES = {
    f"{kind}/{name}": code
    for kind, cases in (
        ("distribution", DISTRIBUTIONS),
        ("image", IMAGES),
        ("estimator", ESTIMATORS),
        ("option", OPTIONS),
        ("input", INPUTS),
        ("rules", RULES),
        ("compiler", COMPILED),
        ("tuning", TUNING),
    )
    for name, code in cases.items()
} | ALGORITHMS
