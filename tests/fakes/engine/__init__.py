"""A fast engine for tests and benchmarks that speaks OpenAI's HTTP; serving.py says how it is steered."""

from tests.fakes.engine.asks import Model as Model
from tests.fakes.engine.child import EngineChild as EngineChild
from tests.fakes.engine.child import free_port as free_port
from tests.fakes.engine.faults import Fault as Fault
from tests.fakes.engine.listening import serving as serving
from tests.fakes.engine.serving import Engine as Engine
from tests.fakes.engine.serving import Pace as Pace
