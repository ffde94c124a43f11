"""Calls of compiled functions by address: a caller is compiled without what it calls, once for everything it may call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

Signature = tuple[types.Type, ...]
"""Types of the arguments of a function that returns nothing."""
_tuple_of: Any = types.BaseTuple.from_types  # numba is not annotated
_unpack: Any = cgutils.unpack_tuple
_if_unlikely: Any = cgutils.if_unlikely


def by_address(signature: Signature) -> Callable[[int, tuple[Any, ...]], None]:
    """Return a function for compiled code, which calls that at an address, see `address_of`, with a tuple of arguments."""

    def typed(_: Any, address: Any, arguments: Any) -> Any:
        given = [each for each in arguments.types if isinstance(each, types.Array)]
        if given != [each for each in signature if isinstance(each, types.Array)]:
            return None  # numba converts numbers, and would take an array for one of other numbers
        return types.none(types.int64, _tuple_of(signature)), _emit_call

    called: Any = intrinsic(typed)
    return called  # type: ignore[no-any-return]  # numba knows no arguments of it


def address_of(function: Any, signature: Signature) -> int:
    """Return the address of a function that is compiled for these types; it stays valid as long as the function is there."""
    function.compile(signature)
    made = function.overloads[signature]
    address: int = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    assert address and made.signature.return_type == types.none
    return address


def _emit_call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit the call as numba emits those of functions that it knows; what the function raises is passed on."""
    address, packed = arguments
    given, convention = signature.args[1].types, context.call_conv
    function_type = convention.get_function_type(types.none, given)
    function = builder.inttoptr(address, function_type.as_pointer())
    unpacked = _unpack(builder, packed, len(given))
    status, _ = convention.call_function(builder, function, types.none, given, unpacked)
    with _if_unlikely(builder, status.is_error):
        convention.return_status_propagate(builder, status)
    return context.get_dummy_value()
