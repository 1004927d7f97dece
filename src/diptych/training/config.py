"""Settings of the optimizer and of training. They are plain values, so that a recipe can save them as JSON."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from diptych.core.shares import PartialShare, Seed

NotNegative = Annotated[float, Field(ge=0)]


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
    """Decay of the running means of the gradient and of its square; not of sgd."""
    eps: NotNegative = 1e-8
    """Added to the denominator; not of sgd."""
    momentum: PartialShare = 0.9
    """Momentum of sgd."""
    weight_decay: NotNegative = 0.0
    """Weight decay: decoupled for adamw, bert_adam and muon, L2 for adam and sgd."""
    decay_biases_and_norms: bool = False
    """Whether biases and layer norms decay too."""
    lr_multipliers: dict[str, NotNegative] = Field(default_factory=dict)
    """Multiples of the learning rate, by how the names of parameters begin."""

    muon_params: tuple[str, ...] = ()
    """How the names of the weights begin that muon trains; the others are trained by adamw."""

    clip: PositiveFloat | None = None
    """Greatest norm of all gradients together; null: not clipped."""
    clip_each: PositiveFloat | None = None
    """Greatest norm of each parameter's gradient (BERT's code); null: not clipped."""
    clip_value: PositiveFloat | None = None
    """Greatest absolute value of each number of the gradients (TDEN's captioner); null: not clipped."""

    schedule: Literal["constant", "linear", "inverse_sqrt", "step", "cosine"] = "linear"
    """How the learning rate changes after the warm-up."""
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    """Steps in which the learning rate rises to its highest value."""
    warmup_share: PartialShare | None = None
    """Warm-up as a share of all steps, instead of warmup_steps."""
    warmup_from_zero: bool = False
    """Whether the first step has the learning rate 0, as in BERT's code."""
    milestones: tuple[PositiveInt, ...] = ()
    """Steps after which the learning rate falls, of the step schedule."""
    decay_every: PositiveInt | None = None
    """Steps between two falls of the learning rate, of the step schedule, instead of milestones."""
    gamma: PositiveFloat = 0.1
    """What the learning rate is multiplied by at each fall of the step schedule."""
    schedule_steps: PositiveInt | None = None
    """Steps over which the learning rate rises and falls, where a run stops before or after; null: all of the run's."""
    lr_times_batch: bool = False
    """Whether lr is that of a batch of one and is multiplied by the batch (VL-BERT's code)."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.warmup_steps is not None and self.warmup_share is not None:
            raise ValueError("warmup_steps and warmup_share are mutually exclusive: pass one")
        if sum(c is not None for c in (self.clip, self.clip_each, self.clip_value)) > 1:
            raise ValueError("clip, clip_each and clip_value are mutually exclusive: pass one")
        if self.kind == "muon" and not self.muon_params:
            raise ValueError("kind=muon needs muon_params; set it to name prefixes of the weights to train")
        falls = bool(self.milestones), self.decay_every is not None
        if self.schedule == "step" and sum(falls) != 1:
            raise ValueError("schedule=step needs either milestones or decay_every: set one of them")
        if self.schedule != "step" and any(falls):
            raise ValueError(f"milestones and decay_every need schedule=step, but schedule={self.schedule}; change it")
        return self


class TrainingConfig(BaseModel):
    """Settings of a run: length, device, logging, checkpoints and validation."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    steps: Annotated[int, Field(gt=0, le=10**12)]  # with more steps, the end date of the progress bar overflows
    """Optimizer steps of the run."""
    epochs: PositiveFloat | None = None
    """Passes over the training samples, from which steps is computed before a run; null: steps is the length."""
    batch: PositiveInt
    """Samples of one step, over all processes."""
    micro_batch: PositiveInt | Literal["auto"] | None = None
    """Samples of one forward pass at most, to save memory, before objectives make several of one (wrong pairs,
    choices); null: the whole batch; auto: as many as a GPU's memory takes, tried before the first step (elsewhere the
    whole batch)."""
    seed: Seed = 0
    """Seed of the first weights, the order of the data and all that is drawn in training."""
    device: str = "auto"
    """Device: auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of forward passes, in training and validation; auto: bf16 where the device gains by it,
    a CPU with batches and widths that are large enough."""
    compile: bool = False
    """Whether torch compiles the layers: the first steps take a minute, later ones on a GPU are faster."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Threads of torch, at most 1024; null: torch's default."""
    loading_threads: Annotated[int, Field(ge=0, le=1024)] = 1
    """Threads that make batches ahead; 0: the training thread makes them."""
    loading_processes: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Processes that make batches ahead instead of threads; null: on a GPU one for each two free cores, at most 8,
    else none."""
    distributed: Literal["ddp", "fsdp"] = "ddp"
    """How processes share the model, under torchrun."""

    log_every: PositiveInt = 10
    """Steps between two lines of metrics.jsonl."""
    tensorboard: bool = False
    """Whether metrics are written for TensorBoard too."""
    checkpoint_every: PositiveInt = 500
    """Steps between two checkpoints."""
    keep: PositiveInt = 2
    """Latest checkpoints that are kept, in addition to the best."""

    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of a running average of the weights, which is then what is saved; null: none."""
    validate_every: PositiveInt | None = None
    """Steps between two validations; null: none."""
    average_best: Annotated[int, Field(ge=0)] = 1
    """Number of best checkpoints whose mean is the final weights; 1: the best; 0: the last, whatever the scores."""
    patience: PositiveInt | None = None
    """Validations without a rise after which the run stops; null: it runs to its end."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.validate_every is None and (self.patience is not None or self.average_best > 1):
            raise ValueError("patience and average_best need validation: set validate_every")
        if self.micro_batch == "auto" and self.distributed == "fsdp":
            raise ValueError(
                "micro_batch=auto is measured by each process separately, which fsdp does not allow: set a number"
            )
        return self

    def accumulation(self, world: int) -> int:
        """Return the number of micro-batches per step and process, for `world` processes."""
        return -(-self.batch // (self.micro_batch * world)) if isinstance(self.micro_batch, int) else 1
