"""The operations under their public names: those that each file of a family lists in its `__all__`.

A new file of a family has its line here. There is no `__all__`: type checkers read literal lists alone, and take every
name that `*` imports for exported.
"""

from stablexla.ops.composed.dynamic_reshape import *
from stablexla.ops.composed.ragged_dot import *
from stablexla.ops.composed.scaled_dot import *
from stablexla.ops.composed.scan import *
from stablexla.ops.composed.stochastic_convert import *
from stablexla.ops.contraction import *
from stablexla.ops.control import *
from stablexla.ops.conversion import *
from stablexla.ops.convolution import *
from stablexla.ops.custom_call import *
from stablexla.ops.devices.collectives import *
from stablexla.ops.devices.effects import *
from stablexla.ops.devices.exchanges import *
from stablexla.ops.devices.roots import *
from stablexla.ops.devices.spmd import *
from stablexla.ops.dynamic_size import *
from stablexla.ops.elementwise import *
from stablexla.ops.fft import *
from stablexla.ops.indexing import *
from stablexla.ops.linear_algebra import *
from stablexla.ops.normalization import *
from stablexla.ops.order import *
from stablexla.ops.random import *
from stablexla.ops.reduction import *
from stablexla.ops.shape import *
from stablexla.ops.support.convolution_numbers import *
from stablexla.ops.support.padding import *
from stablexla.ops.tuples import *
from stablexla.ops.window import *
