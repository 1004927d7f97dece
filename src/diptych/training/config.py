"""Settings of the optimizer and of training. They are plain values, so that a recipe can save them as JSON."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from diptych.core.shares import PartialShare, Seed
from diptych.runtime.configs import derive
from diptych.runtime.errors import RecipeError

NotNegative = Annotated[float, Field(ge=0)]


def _steps_or_epochs(value: int | str) -> int | str:
    if not (re.fullmatch(r"[1-9]\d{0,5}epochs?", value, re.ASCII) if isinstance(value, str) else value > 0):
        raise ValueError("expected a number of steps above 0, or a number of epochs such as 1epoch")
    return value


class OptimizerConfig(BaseModel):
    """The optimizer, gradient clipping and learning rate schedule.

    `lr` is the highest learning rate, reached after warm-up.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    kind: Literal["adamw", "adam", "sgd", "bert_adam", "muon"] = "adamw"
    """Optimizer."""
    lr: PositiveFloat = 1e-4
    """Highest learning rate, reached at the end of the warm-up."""
    betas: tuple[PartialShare, PartialShare] = (0.9, 0.999)
    """Decay rates of the running means of the gradient and of its square; unused by sgd."""
    eps: NotNegative = 1e-8
    """Small number that is added to the denominator; unused by sgd."""
    momentum: PartialShare = 0.9
    """Momentum of sgd."""
    weight_decay: NotNegative = 0.0
    """Weight decay: decoupled for adamw, bert_adam and muon; L2 regularisation for adam and sgd."""
    decay_biases_and_norms: bool = False
    """Whether weight decay also applies to biases and layer norms."""
    lr_multipliers: dict[str, NotNegative] = Field(default_factory=dict)
    """Factors of the learning rate: {prefix of parameter names: factor}."""

    muon_params: tuple[str, ...] = ()
    """Prefixes of the names of the weights that muon trains; adamw trains all others."""

    clip: PositiveFloat | None = None
    """Maximum norm of all gradients together; null: no clipping."""
    clip_each: PositiveFloat | None = None
    """Maximum norm of each parameter's gradient (BERT's code); null: no clipping."""
    clip_value: PositiveFloat | None = None
    """Maximum absolute value of each element of the gradients (TDEN's captioner); null: no clipping."""

    schedule: Literal["constant", "linear", "inverse_sqrt", "step", "cosine"] = "linear"
    """How the learning rate changes after the warm-up."""
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    """Number of steps in which the learning rate rises to its highest value."""
    warmup_share: PartialShare | None = None
    """Warm-up as a share of all steps, instead of warmup_steps."""
    warmup_from_zero: bool = False
    """Whether the first step has the learning rate 0, as in BERT's code."""
    milestones: tuple[PositiveInt, ...] = ()
    """Steps after which the learning rate falls; only for schedule=step."""
    decay_every: PositiveInt | None = None
    """Number of steps between two falls of the learning rate, instead of milestones; only for schedule=step."""
    gamma: PositiveFloat = 0.1
    """Factor of the learning rate at each fall; only for schedule=step."""
    schedule_steps: PositiveInt | None = None
    """Length of the schedule in steps, if it differs from the length of the run; null: the run's number of steps."""
    lr_times_batch: bool = False
    """Whether lr is the learning rate per sample, which is multiplied by the batch size (VL-BERT's code)."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.warmup_steps is not None and self.warmup_share is not None:
            raise ValueError("warmup_steps and warmup_share are mutually exclusive: pass one")
        if sum(c is not None for c in (self.clip, self.clip_each, self.clip_value)) > 1:
            raise ValueError("clip, clip_each and clip_value are mutually exclusive: pass one")
        if self.kind == "muon" and not self.muon_params:
            raise ValueError("kind=muon needs muon_params; set it to the name prefixes of the weights that Muon trains")
        falls = bool(self.milestones), self.decay_every is not None
        if self.schedule == "step" and sum(falls) != 1:
            raise ValueError("schedule=step needs either milestones or decay_every: set one of them")
        if self.schedule != "step" and any(falls):
            raise ValueError(f"milestones and decay_every need schedule=step, but schedule={self.schedule}; change it")
        return self


class TrainingConfig(BaseModel):
    """Settings of a run: length, device, logging, checkpoints and validation."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    # With more steps, computing the end date for the progress bar overflows.
    steps: Annotated[int, Field(gt=0, le=10**12)]
    """Number of optimizer steps of the run."""
    epochs: PositiveFloat | None = None
    """Passes over the training samples, from which the number of steps is computed; null: steps is the length."""
    batch: PositiveInt
    """Number of samples per step, over all processes."""
    micro_batch: PositiveInt | Literal["auto"] | None = None
    """Maximum number of samples per forward pass, to save memory. Samples that objectives add (mismatched pairs,
    choices) do not count. null: the whole batch; auto: as many as fit into the GPU's memory, found by trial before the
    first step (without a GPU: the whole batch)."""
    seed: Seed = 0
    """Seed of the initial weights, of the order of the data, and of all random numbers in training."""
    device: str = "auto"
    """Device: auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of forward passes, in training and validation. auto: bf16 if it is faster on the device; on a CPU this
    also depends on the batch size and the model's width."""
    compile: bool = False
    """Whether torch compiles the layers. The first steps then take a minute; later steps are faster on a GPU."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of torch's threads, at most 1024; null: torch's default."""
    loading_threads: Annotated[int, Field(ge=0, le=1024)] = 1
    """Number of threads that prefetch batches; 0: the training thread makes them."""
    loading_processes: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Number of processes that prefetch batches instead of threads; null: with a GPU, one per two free cores, at most
    8; otherwise none."""
    distributed: Literal["ddp", "fsdp"] = "ddp"
    """How the processes that torchrun starts share the model."""

    log_every: PositiveInt = 10
    """Number of steps between two lines of metrics.jsonl."""
    tensorboard: bool = False
    """Whether metrics are also written for TensorBoard."""
    checkpoint_every: PositiveInt = 500
    """Number of steps between two checkpoints."""
    keep: PositiveInt = 2
    """Number of latest checkpoints that are kept, in addition to the best."""

    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of an exponential moving average of the weights, which is then used and saved; null: no average."""
    validate_every: Annotated[int | str, AfterValidator(_steps_or_epochs)] | None = None
    """Number of steps between two validations, or of passes over the training samples, such as 1epoch; null: no
    validation."""
    average_best: Annotated[int, Field(ge=0)] = 1
    """Number of best checkpoints whose weights are averaged to the final weights; 1: the best; 0: the last step."""
    patience: PositiveInt | None = None
    """Number of validations without a better score after which the run stops; null: it does not stop early."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.validate_every is None and (self.patience is not None or self.average_best > 1):
            raise ValueError("patience and average_best need validation: set validate_every")
        if self.micro_batch == "auto" and self.distributed == "fsdp":
            raise ValueError(
                "micro_batch=auto is measured by each process separately, which fsdp does not allow: set a number"
            )
        return self

    def in_steps(self, epoch: int | None) -> Self:
        """Return the settings with `validate_every` in steps. `epoch`: number of steps in an epoch, if the data has
        epochs. Raises RecipeError if it is needed and None."""
        if not isinstance(self.validate_every, str):
            return self
        if epoch is None:
            raise RecipeError(
                f"training.validate_every={self.validate_every}: this data has no epochs; set a number of steps"
            )
        return derive(self, validate_every=int(self.validate_every.partition("e")[0]) * epoch)

    def accumulation(self, world: int) -> int:
        """Return the number of micro-batches per step and process, for `world` processes."""
        return -(-self.batch // (self.micro_batch * world)) if isinstance(self.micro_batch, int) else 1
