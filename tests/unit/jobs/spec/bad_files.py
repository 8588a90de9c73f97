"""Bad job files, each with every mistake to be reported: a line, a path, a piece of the message, the nearest name."""

from __future__ import annotations

from typing import NamedTuple


class Mistake(NamedTuple):
    """What one mistake must say."""

    line: int | None
    path: str
    message: str
    nearest: str | None = None


class BadFile(NamedTuple):
    """A file, and exactly the mistakes that are in it."""

    name: str
    text: str | bytes
    mistakes: list[Mistake]


HEAD = "kind: train\nname: a\n"
BUDGET = "budget: {max_total: 1}\n"
TRAIN = "work: {steps: 1}\ntrain: {}\n"
GOOD = HEAD + BUDGET + TRAIN  # 5 lines; what a case adds begins in line 6


def with_lines(name: str, text: str, *mistakes: Mistake) -> BadFile:
    """A good file with more lines, which begin in line 6."""
    return BadFile(name, GOOD + text, list(mistakes))


def one(name: str, text: str | bytes, line: int | None, path: str, message: str, nearest: str | None = None) -> BadFile:
    """A file with one mistake."""
    return BadFile(name, text, [Mistake(line, path, message, nearest)])


def resource(name: str, text: str, path: str, message: str, nearest: str | None = None) -> BadFile:
    """One mistake in resources."""
    return one(name, f"{GOOD}resources: {{{text}}}\n", 6, f"resources.{path}", message, nearest)


def budget(name: str, text: str, path: str, message: str, nearest: str | None = None) -> BadFile:
    """One mistake in the budget."""
    return one(name, HEAD + TRAIN + f"budget:\n  {text}\n", 6, f"budget.{path}", message, nearest)


def train(name: str, text: str, path: str, message: str, nearest: str | None = None) -> BadFile:
    """One mistake in train."""
    return one(name, HEAD + BUDGET + f"work: {{tokens: 5}}\ntrain:\n  {text}\n", 6, f"train.{path}", message, nearest)


UNREADABLE = [
    one("empty", "", 1, "", "the file is empty"),
    one("only a comment", "# nothing\n", 1, "", "the file is empty"),
    one("only null", "~\n", 1, "", "the file is empty"),
    one("a list", "- kind: train\n", 1, "", "a list is not a job file"),
    one("a text", "kind train\n", 1, "", "'kind train' is not a job file"),
    one("two documents", GOOD + "---\nkind: train\n", 6, "", "a second document begins here"),
    one("a tab", "kind: train\nresources:\n\tgpus: 2\n", 3, "", "a tab is not allowed here"),
    one("a tab after spaces", "kind: train\nresources:\n  gpus: 2\n \tnodes: 1\n", 4, "", "a tab is not allowed here"),
    one("an open bracket", "kind: train\nfiles: [a, b\nname: x\n", 3, "", "not valid YAML"),
    one("an open quote", 'kind: train\nname: "x\n', 3, "", "not valid YAML"),
    one("a colon too many", "kind: train\nname: a: b\n", 2, "", "a second ': ' in one line"),
    one("a line without a colon", "kind: train\nname\nwork: {steps: 1}\n", 3, "", "this line is no key"),
    one("not UTF-8", b"kind: train\nname: caf\xe9\n", 2, "", "the byte 0xe9 is not UTF-8"),
    one("UTF-16", GOOD.encode("utf-16"), 1, "", "the byte 0xff is not UTF-8"),
    one("a zero byte", "kind: train\nname: a\0b\n", 2, "", "U+0000 is not allowed"),
    one("a control character", "kind: train\nname: a\x07\n", 2, "", "U+0007 is not allowed"),
    one("10 MB", "# " + "x" * 10_000_000, None, "", "the file is too large"),
    one("a bomb of aliases", "a: &a [x, x]\nb: [*a, *a]\n", 1, "", "the anchor &a is not allowed"),
    one("an alias of nothing", "a: *nothing\n", 1, "", "the alias *nothing is not allowed"),
    one("nested 10000 deep", "a: " + "[" * 10_000, 1, "", "nested more than 16 deep"),
    one("nested blocks", "\n".join(" " * n + "a:" for n in range(40)), 17, "", "nested more than 16 deep"),
    one("many values", "a: [" + "1," * 30_000 + "]", 1, "", "more than 20000 values"),
    one("a Python object", "a: !!python/object/apply:os.system [ls]\n", 1, "", "is not allowed"),
    one("a tag", "kind: !!str train\n", 1, "", "the tag tag:yaml.org,2002:str is not allowed"),
    one("a list as a key", "? [a, b]\n: c\n", 1, "", "a list or mapping cannot be a key"),
]

FIELDS = [
    with_lines("a key twice", "budget: {max_total: 5}\n", Mistake(6, "budget", "given twice, first in line 3")),
    with_lines(
        "a nested key twice", "resources:\n  gpus: 1\n  gpus: 2\n", Mistake(8, "resources.gpus", "first in line 7")
    ),
    with_lines("an unknown section", "resorces: {gpus: 1}\n", Mistake(6, "resorces", "unknown field", "resources")),
    with_lines("a field outside its section", "gpus: 2\n", Mistake(6, "gpus", "unknown field", "resources.gpus")),
    with_lines("a number as a key", "1: 2\n", Mistake(6, "1", "unknown field")),
    with_lines("a merge key", "<<: {a: 1}\n", Mistake(6, "<<", "unknown field")),
    with_lines("a section that is a number", "resources: 3\n", Mistake(6, "resources", "3 is not valid")),
    with_lines("a section that is a list", "retry: [1]\n", Mistake(6, "retry", "a list is not valid")),
    one("no kind", "name: a\n" + BUDGET + TRAIN, 1, "kind", "is missing"),
    one("an unknown kind", "kind: trian\nname: a\n" + BUDGET + TRAIN, 1, "kind", "'trian' is not a kind", "train"),
    one("no name", "kind: train\n" + BUDGET + TRAIN, 1, "name", "is missing"),
    one("a capital name", "kind: train\nname: Tiny\n" + BUDGET + TRAIN, 2, "name", "'Tiny' is not valid"),
    one("a long name", f"kind: train\nname: {'a' * 64}\n" + BUDGET + TRAIN, 2, "name", "is not valid"),
    one("a name that is a number", "kind: train\nname: 7\n" + BUDGET + TRAIN, 2, "name", "7 is not valid"),
    one("a name that ends with a line", 'kind: train\nname: "a\\n"\n' + BUDGET + TRAIN, 2, "name", "is not valid"),
    resource("gpus as a word", "gpus: two", "gpus", "'two' is not valid"),
    resource("nodes zero", "nodes: 0", "nodes", "0 is out of range"),
    resource("nodes as a text", 'nodes: "2"', "nodes", "'2' is not valid"),
    resource("a range from one node", "nodes: 1..3", "nodes", "'1..3' is no range from 2 or more nodes"),
    resource("a range that falls", "nodes: 6..2", "nodes", "'6..2' is no range from 2 or more nodes"),
    resource("a range of one size", "nodes: 2..2", "nodes", "'2..2' is no range from 2 or more nodes"),
    resource("a range without an end", "nodes: 2..", "nodes", "'2..' is not valid"),
    resource("a range of too many nodes", "nodes: 2..1025", "nodes", "'2..1025' is out of range"),
    resource("gpus as a text", 'gpus: "2"', "gpus", "'2' is not valid"),
    resource("gpus as a fraction", "gpus: 1.5", "gpus", "1.5 is not valid"),
    resource("gpus zero", "gpus: 0", "gpus", "0 is not valid"),
    resource("gpus negative", "gpus: -1", "gpus", "-1 is not valid"),
    resource("gpus yes", "gpus: yes", "gpus", "'yes' is not valid"),
    resource("gpus true", "gpus: true", "gpus", "true is not valid"),
    resource("gpus empty", "gpus: ", "gpus", "nothing is not valid"),
    resource("gpus octal", "gpus: 02", "gpus", "'02' is not valid"),
    resource("gpus sexagesimal", "gpus: 1:30", "gpus", "'1:30' is not valid"),
    resource("gpus enormous", f"gpus: {'9' * 5000}", "gpus", "is not valid"),
    resource("gpus misspelt", "gpuz: 2", "gpuz", "unknown field", "gpus"),
    resource("kind misspelt", "kind: gpus", "kind", "'gpus' is not valid", "gpu"),
    resource("memory without a unit", "memory: 24", "memory", "24 is not an amount of memory"),
    resource("memory in a wrong unit", "memory: 24gb", "memory", "'24gb' is not an amount of memory"),
    resource("memory zero", "memory: 0GB", "memory", "'0GB' is out of range"),
    resource("shared memory without a unit", "shm: 8", "shm", "8 is not an amount of memory"),
    resource("no cores", "cpus: 0", "cpus", "0 is not valid"),
    resource("cores without end", "cpus: 4097", "cpus", "4097 is not valid"),
    resource("half a core", "cpus: 0.5", "cpus", "0.5 is not valid"),
    resource("a disk without a unit", "disk: 100", "disk", "100 is not an amount of memory"),
    resource("memory of a node in a wrong unit", "ram: 64gb", "ram", "'64gb' is not an amount of memory"),
    resource("a CUDA of three parts", "cuda: 12.4.1", "cuda", "'12.4.1' is not a version such as 12.4"),
    resource("a CUDA with two digits behind its point", "cuda: 12.10", "cuda", "12.10 is not a version such as 12.4"),
    resource("a CUDA of none", "cuda: 0.5", "cuda", "0.5 is out of range"),
    resource("a CUDA that is true", "cuda: true", "cuda", "true is not a version such as 12.4"),
    resource("a capability in words", "compute_capability: sm_90", "compute_capability", "'sm_90' is not a version"),
    resource("a negative capability", "compute_capability: -8", "compute_capability", "-8 is not a version"),
    resource("CUDA of processors", "kind: cpu, cuda: 12.4", "cuda", "is of GPUs, and kind is cpu"),
    one(
        "replicas that offload",
        GOOD.replace("train: {}", "train: {offload: all, strategy: ddp}"),
        5,
        "train.offload",
        "is all, and ddp keeps the whole model on each device",
    ),
    resource("a model that is a number", "models: [4090]", "models[0]", "4090 is not valid"),
    resource("a region with a space", "region: [eu west]", "region[0]", "'eu west' is not valid"),
    budget("no maximum", "deadline: 2h", "max_total", "is missing"),
    budget("money not a number", "max_total: .nan", "max_total", "'.nan' is not an amount of money"),
    budget("money infinite", "max_total: .inf", "max_total", "'.inf' is not an amount of money"),
    budget("money negative", "max_total: -2", "max_total", "-2 is not an amount of money"),
    budget("money zero", "max_total: 0.00", "max_total", "0.00 is not above zero"),
    budget("money too fine", "max_total: 0.0000001", "max_total", "finer than a millionth"),
    budget("money in words", "max_total: two dollars", "max_total", "'two dollars' is not an amount of money"),
    budget("money true", "max_total: true", "max_total", "true is not an amount of money"),
    budget("money enormous", "max_total: 1e300", "max_total", "is not an amount of money"),
    budget("money misspelt", "max_totl: 1\n  max_total: 1", "max_totl", "unknown field", "max_total"),
    budget("a deadline without a unit", "{max_total: 1, deadline: 90}", "deadline", "90 is not a duration"),
    budget("a deadline in words", "{max_total: 1, deadline: soon}", "deadline", "'soon' is not a duration"),
    budget("a deadline of nothing", "{max_total: 1, deadline: 0s}", "deadline", "'0s' is out of range"),
    with_lines(
        "checkpoints never", "checkpoint: {every: never}\n", Mistake(6, "checkpoint.every", "'never' is not a duration")
    ),
    with_lines("every 0 steps", "checkpoint: {every: 0 steps}\n", Mistake(6, "checkpoint.every", "is out of range")),
    with_lines("checkpoints kept: none", "checkpoint: {keep: 0}\n", Mistake(6, "checkpoint.keep", "0 is not valid")),
    with_lines("no attempts", "retry: {max_attempts: 0}\n", Mistake(6, "retry.max_attempts", "0 is not valid")),
    with_lines(
        "an unknown ending",
        "retry: {on: [exit_nonzer]}\n",
        Mistake(6, "retry.on[0]", "'exit_nonzer' is not valid", "exit_nonzero"),
    ),
    with_lines("a variable that is a number", "env: {A: 3}\n", Mistake(6, "env.A", "3 is not valid")),
    with_lines("a variable that is true", "env:\n  B: x\n  A: true\n", Mistake(8, "env.A", "true is not valid")),
    with_lines(
        "a variable with a dash", "env: {A-B: x}\n", Mistake(6, "env.A-B", "is not a name of an environment variable")
    ),
    with_lines("a reserved variable", "env: {SOUK_JOB_ID: x}\n", Mistake(6, "env.SOUK_JOB_ID", "which is reserved")),
    with_lines("a secret with its value", "secrets: {A: b}\n", Mistake(6, "secrets", "a mapping is not valid")),
    with_lines("a secret twice", "secrets: [A, A]\n", Mistake(6, "secrets[1]", "'A' is named twice")),
    with_lines("a secret in env", "env: {A: x}\nsecrets: [A]\n", Mistake(7, "secrets[0]", "'A' is in env too")),
    with_lines("a file above", "files: [../a]\n", Mistake(6, "files[0]", "is not a path below")),
    with_lines("a file from the root", "files: [/etc/passwd]\n", Mistake(6, "files[0]", "is not a path below")),
    with_lines("a file of Windows", 'files: ["C:x"]\n', Mistake(6, "files[0]", "is not a path below")),
    with_lines("a file twice", "files: [a, a]\n", Mistake(6, "files[1]", "'a' is named twice")),
    one("an image above itself", HEAD + BUDGET + "command: x\nimage: a/../../images/b\n", 5, "image", "is not valid"),
    one("an image with spaces", HEAD + BUDGET + "command: x\nimage: a b\n", 5, "image", "'a b' is not valid"),
]

RULES = [
    one("nothing to do", HEAD + BUDGET, 1, "", "neither train nor command"),
    with_lines("both programs", "command: python x.py\n", Mistake(6, "command", "stands beside train")),
    with_lines("an image for the runtime", "image: a\n", Mistake(6, "image", "is given without a command")),
    one("no work", HEAD + BUDGET + "train: {}\n", 1, "work", "is missing"),
    one("empty work", HEAD + BUDGET + "train: {}\nwork: {}\n", 5, "work", "neither tokens nor steps"),
    one(
        "twice the work", HEAD + BUDGET + "train: {}\nwork: {tokens: 1, steps: 2}\n", 5, "work", "both tokens and steps"
    ),
    one("no tokens", HEAD + BUDGET + "train: {}\nwork: {tokens: 0}\n", 5, "work.tokens", "0 is not valid"),
    one("tokens of a command", HEAD + BUDGET + "command: x\nwork: {tokens: 5}\n", 5, "work.tokens", "means nothing"),
    one(
        "flops of the runtime",
        HEAD + BUDGET + "train: {}\nwork: {steps: 5, flops_per_step: 3}\n",
        5,
        "work.flops_per_step",
        "is for an own command",
    ),
    one("an empty command", HEAD + BUDGET + 'command: ""\n', 4, "command", "'' is empty"),
    one("an open quote in a command", HEAD + BUDGET + "command: echo 'a\n", 4, "command", "No closing quotation"),
    one("a command of numbers", HEAD + BUDGET + "command: [sleep, 5]\n", 4, "command[1]", "5 is not valid"),
    one("a command of no words", HEAD + BUDGET + "command: []\n", 4, "command", "a list is too short"),
    train("an unknown key", "lerning_rate: 1", "lerning_rate", "unknown field", "learning_rate"),
    train("a rate in words", "learning_rate: fast", "learning_rate", "'fast' is not a number"),
    train("a rate not a number", "learning_rate: .nan", "learning_rate", "'.nan' is not a number"),
    train("a rate of nothing", "learning_rate: 0.0", "learning_rate", "0.0 is not valid"),
    train("a rate as a text", 'learning_rate: "3e-4"', "learning_rate", "'3e-4' is not a number"),
    train("tokens in the wrong place", "tokens: 5", "tokens", "is not a field of train"),
    train("one beta", "betas: [0.9]", "betas", "a list is too short"),
    train("a beta of one", "betas: [0.9, 1]", "betas[1]", "1 is not valid"),
    train("no data", "data: []", "data", "a list is too short"),
    train("an unknown number format", "dtype: float23", "dtype", "'float23' is not valid", "float32"),
    train("adapters of no model", "lora: {}", "lora", "tiny-llama is shipped without any"),
    train("a misspelt rank", "lora: {rnk: 4}\n  model: m", "lora.rnk", "unknown field", "rank"),
    train("a pattern for modules", "lora: {targets: '.*'}\n  model: m", "lora.targets[0]", "'.*' is not valid"),
    train("yes", "log_samples: yes", "log_samples", "'yes' is not valid"),
    train("a small vocabulary", "vocabulary_size: 10", "vocabulary_size", "10 is not valid"),
    train("a large micro batch", "micro_batch_size: 32", "micro_batch_size", "32 is more than global_batch_size"),
    one(
        "a batch smaller than the devices",
        GOOD.replace("train: {}", "train: {global_batch_size: 2}") + "resources: {gpus: 4}\n",
        5,
        "train.global_batch_size",
        "too few for 4 devices",
    ),
    one(
        "a batch smaller than the devices that it may grow to",
        GOOD.replace("train: {}", "train: {global_batch_size: 8}") + "resources: {gpus: 2, nodes: 2..5}\n",
        5,
        "train.global_batch_size",
        "too few for 10 devices",
    ),
    one(
        "a command that would grow",
        HEAD + BUDGET + "command: x\nresources: {nodes: 2..4}\n",
        5,
        "resources.nodes",
        "only the built-in training can go on with more nodes",
    ),
    one(
        "a wallet that would pay for more nodes",
        GOOD + "resources: {nodes: 2..4}\npayment: {asset: TUSD, mode: escrow}\n",
        6,
        "resources.nodes",
        "each node's share of what your wallet signed is fixed",
    ),
    BadFile(
        "many at once",
        "kind: train\nname: Tiny\nresources:\n  gpuz: 2\n  nodes: two\nbudgt: {}\ntrain:\n  seed: -1\n",
        [
            Mistake(1, "budget", "is missing"),
            Mistake(1, "work", "is missing"),
            Mistake(2, "name", "'Tiny' is not valid"),
            Mistake(4, "resources.gpuz", "unknown field", "gpus"),
            Mistake(5, "resources.nodes", "'two' is not valid"),
            Mistake(6, "budgt", "unknown field", "budget"),
            Mistake(8, "train.seed", "-1 is not valid"),
        ],
    ),
]

BAD_FILES = UNREADABLE + FIELDS + RULES
