"""Jobs with rules of SageMaker Debugger, with framework profiling, and with SageMaker Training Compiler."""

from __future__ import annotations

_IMPORT = (
    "from sagemaker.debugger import (CollectionConfig, DebuggerHookConfig, FrameworkProfile, ProfilerConfig,"
    " ProfilerRule, PythonProfilingConfig, DetailedProfilingConfig, Rule, rule_configs)\n"
    "CUSTOM=dict(image_uri=IMAGE,instance_type='ml.t3.medium',volume_size_in_gb=10)\n"
)


def _torch(arguments: str) -> str:
    return f"{_IMPORT}go(PyTorch(**BASE,**P4,{arguments}))"


def _compiled(kind: str, arguments: str) -> str:
    return (
        f"from sagemaker.{kind.lower()} import TrainingCompilerConfig\n"
        f"go({kind}(entry_point='train.py',source_dir=SRC,role=ROLE,instance_count=1,"
        f"instance_type='ml.p3.2xlarge',{arguments}))"
    )


RULES = {
    "all": _torch(
        "rules=[Rule.sagemaker(getattr(rule_configs,name)()) for name in ("
        "'all_zero','check_input_images','class_imbalance','confusion','create_xgboost_report','dead_relu',"
        "'exploding_tensor','feature_importance_overweight','loss_not_decreasing','nlp_sequence_ratio','overfit',"
        "'overtraining','poor_weight_initialization','saturated_activation','similar_across_runs',"
        "'tensor_variance','tree_depth','unchanged_tensor','vanishing_gradient',"
        "'weight_update_ratio')]"
    ),
    "stalled": _torch("rules=[Rule.sagemaker(rule_configs.stalled_training_rule())]"),
    "named": _torch(
        "rules=[Rule.sagemaker(rule_configs.loss_not_decreasing(),name='loss',rule_parameters={'num_steps':'10'},"
        "collections_to_save=[CollectionConfig('losses',{'save_interval':'5'})],s3_output_path='s3://my-data/r',"
        "container_local_output_path='/opt/ml/r')],"
        "debugger_hook_config=DebuggerHookConfig('s3://my-data/d',collection_configs=[CollectionConfig('weights')])"
    ),
    "without_hook": _torch("rules=[Rule.sagemaker(rule_configs.overfit())],debugger_hook_config=False"),
    "trials": _torch(
        "rules=[Rule.sagemaker(rule_configs.similar_across_runs(),other_trials_s3_input_paths=['s3://my-data/o'])]"
    ),
    "action": _torch(
        "rules=[Rule.sagemaker(rule_configs.overfit(),actions=rule_configs.StopTraining()),"
        "Rule.sagemaker(rule_configs.overfit(),name='two',actions=rule_configs.ActionList("
        "rule_configs.StopTraining('my-job'),rule_configs.Email('abc@abc.com'),rule_configs.SMS('+1234567890')))]"
    ),
    "custom": _torch(
        "rules=[Rule.custom('mine',source='s3://my-data/r.py',rule_to_invoke='Mine',rule_parameters={'a':'1'},"
        "collections_to_save=[CollectionConfig('losses')],**CUSTOM),"
        "ProfilerRule.custom('yours',source='s3://my-data/r.py',rule_to_invoke='Yours',"
        "rule_parameters={'a':1},**CUSTOM)]"
    ),
    "profiler": _torch(
        "rules=[ProfilerRule.sagemaker(getattr(rule_configs,name)()) for name in ("
        "'BatchSize','CPUBottleneck','GPUMemoryIncrease','IOBottleneck','LoadBalancing','LowGPUUtilization',"
        "'MaxInitializationTime','OverallSystemUsage','StepOutlier','ProfilerReport')]"
    ),
    "profiler_named": _torch(
        "rules=[ProfilerRule.sagemaker(rule_configs.ProfilerReport(CPUBottleneck_threshold=90),name='report'),"
        "ProfilerRule.sagemaker(rule_configs.BatchSize(window=10),s3_output_path='s3://my-data/b'),"
        "Rule.sagemaker(rule_configs.loss_not_decreasing())],"
        "profiler_config=ProfilerConfig(system_monitor_interval_millis=500)"
    ),
    "profiler_off": _torch("rules=[ProfilerRule.sagemaker(rule_configs.BatchSize())],disable_profiler=True"),
    "half_of_custom": _torch("rules=[Rule.custom('mine',source='s3://my-data/r.py',**CUSTOM)]"),
    "framework_profile": _torch(
        "profiler_config=ProfilerConfig(framework_profile_params=FrameworkProfile())"
    ),
    "framework_profile_steps": _torch(
        "profiler_config=ProfilerConfig('s3://my-data/p',500,"
        "FrameworkProfile(local_path='/opt/ml/p/',start_step=5,num_steps=10))"
    ),
    "framework_profile_time": _torch(
        "profiler_config=ProfilerConfig(framework_profile_params=FrameworkProfile("
        "start_unix_time=1700000000,duration=600))"
    ),
    "framework_profile_parts": _torch(
        "profiler_config=ProfilerConfig(framework_profile_params=FrameworkProfile("
        "detailed_profiling_config=DetailedProfilingConfig(start_step=5),"
        "python_profiling_config=PythonProfilingConfig(num_steps=2)))"
    ),
    "framework_profile_both": _torch(
        "profiler_config=ProfilerConfig(framework_profile_params=FrameworkProfile(start_step=5,duration=600))"
    ),
}

COMPILED = {
    "huggingface": _compiled(
        "HuggingFace",
        "transformers_version='4.21.1',pytorch_version='1.11.0',py_version='py38',"
        "compiler_config=TrainingCompilerConfig(),hyperparameters={'a':1}",
    ),
    "huggingface_short": _compiled(
        "HuggingFace",
        "transformers_version='4.17',pytorch_version='1.10',py_version='py38',"
        "compiler_config=TrainingCompilerConfig()",
    ),
    "huggingface_tensorflow": _compiled(
        "HuggingFace",
        "transformers_version='4.17.0',tensorflow_version='2.6.3',py_version='py38',"
        "compiler_config=TrainingCompilerConfig(debug=True)",
    ),
    "huggingface_version": _compiled(
        "HuggingFace",
        "transformers_version='4.49.0',pytorch_version='2.5.1',py_version='py311',"
        "compiler_config=TrainingCompilerConfig()",
    ),
    "pytorch": _compiled(
        "PyTorch",
        "framework_version='1.13.1',py_version='py39',compiler_config=TrainingCompilerConfig(),"
        "disable_profiler=True,debugger_hook_config=False",
    ),
    "pytorch_xla": _compiled(
        "PyTorch",
        "framework_version='1.12',py_version='py38',compiler_config=TrainingCompilerConfig(),"
        "distribution={'pytorchxla':{'enabled':True}}",
    ),
    "pytorch_torch_distributed": _compiled(
        "PyTorch",
        "framework_version='1.13.1',py_version='py39',compiler_config=TrainingCompilerConfig(),"
        "distribution={'torch_distributed':{'enabled':True}}",
    ),
    "pytorch_xla_alone": _compiled(
        "PyTorch", "framework_version='1.13.1',py_version='py39',distribution={'pytorchxla':{'enabled':True}}"
    ),
    "pytorch_image": _compiled("PyTorch", "image_uri=IMAGE,compiler_config=TrainingCompilerConfig()"),
    "tensorflow": _compiled(
        "TensorFlow",
        "framework_version='2.11',py_version='py39',compiler_config=TrainingCompilerConfig()",
    ),
    "tensorflow_old": _compiled(
        "TensorFlow",
        "framework_version='2.8.0',py_version='py39',compiler_config=TrainingCompilerConfig()",
    ),
    "tensorflow_cpu": _compiled(
        "TensorFlow",
        "framework_version='2.11',py_version='py39',compiler_config=TrainingCompilerConfig()",
    ).replace("ml.p3.2xlarge", "ml.m5.xlarge"),
}
