"""The registry: finds plugins by name, loads them one at a time and checks the classes they return."""

from __future__ import annotations

import importlib
import os
from difflib import get_close_matches
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pluggy

from specdec import hooks
from specdec.errors import PluginError, described, is_interrupt
from specdec.registry import advice
from specdec.registry.backend_list import VARIABLE, make_backends
from specdec.registry.catalogue import always_allowed, known_method
from specdec.registry.class_path import is_class_path, load_class
from specdec.registry.discovery import (
    ALLOW_VARIABLE,
    BrokenPackage,
    discover,
    is_allowed,
    normalized,
)
from specdec.registry.plugin_info import Group, PluginInfo
from specdec.registry.role import ROLES

if TYPE_CHECKING:
    import typer

    from specdec.interfaces import Backend, Part, Proposer, Sampler, Scorer

PartType = TypeVar("PartType", bound="Part")
OBSERVER_HOOKS = ("specdec_step_finished", "specdec_request_finished")


class Registry:
    """All plugins of this process, behind one pluggy manager.

    Metadata is read once. A plugin's module is imported on first use, and registered once even if
    several entry points name it.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything found and loaded; for tests and for processes that install packages while they run."""
        self._manager = pluggy.PluginManager(hooks.PROJECT)
        self._manager.add_hookspecs(hooks)
        self._found: tuple[tuple[PluginInfo, ...], tuple[BrokenPackage, ...]] | None = None
        self._classes: dict[tuple[Group, str], type[Any]] = {}
        self._backends: dict[str | None, tuple[Backend, ...]] = {}

    def installed(self, group: Group | str | None = None) -> list[PluginInfo]:
        """Return the plugins listed in the metadata of installed packages, of one group or of all; imports nothing."""
        return [info for info in self._discovered()[0] if group is None or info.group == group]

    def broken(self) -> tuple[BrokenPackage, ...]:
        """Return the installed packages whose metadata cannot be read; plugins that they have are left out."""
        return self._discovered()[1]

    def may_load(self, info: PluginInfo) -> bool:
        """Return whether a plugin may load: see `is_allowed`; core and its parts always may."""
        return normalized(info.distribution) in always_allowed() or is_allowed(info.distribution, info.name)

    def proposer(self, name: str) -> type[Proposer]:
        """Return the class behind a method name, a `./file.py:Class` or a `package.module.Class`.

        Raises:
            PluginError: if there is none, or if it cannot be loaded; names distribution, version and cause.
        """
        return cast("type[Proposer]", self._class(Group.PROPOSERS, name))

    def sampler(self, name: str) -> type[Sampler]:
        """Return the class behind a `rejection_sample_method`; see `proposer`."""
        return cast("type[Sampler]", self._class(Group.SAMPLERS, name))

    def scorer(self, name: str) -> type[Scorer]:
        """Return the class behind a scorer's name; see `proposer`."""
        return cast("type[Scorer]", self._class(Group.SCORERS, name))

    def backend(self, name: str) -> type[Backend]:
        """Return the class behind a backend's name; see `proposer`."""
        return cast("type[Backend]", self._class(Group.BACKENDS, name))

    def backends(self) -> tuple[Backend, ...]:
        """Return the installed backends, or those that `SPECDEC_BACKENDS` names, in the order they are asked.

        Raises:
            PluginError: if the environment names a backend that is not installed or cannot be loaded.
        """
        chosen = os.environ.get(VARIABLE)
        if chosen not in self._backends:
            self._backends[chosen] = make_backends(self, chosen)
        return self._backends[chosen]

    def part(self, name: str, kind: type[PartType]) -> type[PartType]:
        """Return the class behind the name of a part of specdec; see `proposer`.

        Args:
            name: of the part.
            kind: the class that it must derive from.
        """
        found = self._class(Group.PARTS, name)
        if not issubclass(found, kind):
            info = self.find(Group.PARTS, name)
            raise PluginError(
                f"{info}: {found.__qualname__} must be a subclass of {kind.__module__}.{kind.__qualname__}"
            )
        return found

    def observers(self) -> tuple[pluggy.HookRelay | None, list[PluginError]]:
        """Load every observer that may load; called when an engine starts.

        Returns:
            the hooks to call, or None if there are no observers; and the errors of broken observers.
        """
        errors = []
        for info in self.installed(Group.OBSERVERS):
            if self.may_load(info):
                try:
                    self.load(info)
                except PluginError as error:
                    errors.append(error)
        listening = any(getattr(self._manager.hook, hook).get_hookimpls() for hook in OBSERVER_HOOKS)
        return (self._manager.hook if listening else None), errors

    def commands(self) -> list[PluginInfo]:
        """Return the sub-commands that may load; reads metadata only."""
        return [info for info in self.installed(Group.COMMANDS) if self.may_load(info)]

    def add_command(self, name: str, app: typer.Typer) -> None:
        """Import the module behind a sub-command and let it add itself to `app`.

        Raises:
            PluginError: if it cannot be loaded.
        """
        info = self.find(Group.COMMANDS, name)
        module = self.load(info)
        self._call(module, "specdec_register_commands", info, app=app)

    def find(self, group: Group, name: str) -> PluginInfo:
        """Return the one entry point of that name that may load, without importing it.

        Raises:
            PluginError: if there is none, if two distributions that may load claim it, or if `SPECDEC_PLUGINS` excludes it.
        """
        installed = self.installed(group)
        found = [info for info in installed if info.name == name]
        if not found and group is Group.PROPOSERS and (known := known_method(name)) is not None:
            found = [info for info in installed if info.name == known.name]
        if not found:
            raise PluginError(advice.not_installed(group, name, installed, self.broken()))
        if len(found) > 1:  # the environment may have chosen among them
            chosen = [info for info in found if is_allowed(info.distribution, info.name)]
            found = chosen or [info for info in found if self.may_load(info)] or found
        if len(found) > 1:
            claims = " and ".join(f"{info.distribution} {info.version}" for info in found)
            raise PluginError(
                f"{group.noun} {name!r} is claimed by {claims}: uninstall one of them, or name one in {ALLOW_VARIABLE}"
            )
        if not self.may_load(found[0]):
            raise PluginError(
                f"{found[0]} may not load: {ALLOW_VARIABLE}={os.environ[ALLOW_VARIABLE]} holds neither "
                f"{name!r} nor {found[0].distribution!r}"
            )
        return found[0]

    def load(self, info: PluginInfo) -> ModuleType:
        """Import and register the module of one entry point.

        Raises:
            PluginError: naming distribution, version and cause.
        """
        if ":" in info.module:
            raise PluginError(
                f"{info}: an entry point must name a module, not an object in it; got {info.module!r}"
            )
        try:
            module = importlib.import_module(info.module)
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise PluginError(
                f"{info} cannot be loaded: {described(error)} (module {info.module})"
            ) from error
        if not self._manager.is_registered(module):
            try:
                self._manager.register(module)
                self._manager.check_pending()
            except pluggy.PluginValidationError as error:
                if self._manager.is_registered(module):
                    self._manager.unregister(module)
                raise PluginError(f"{info} cannot be loaded: {self._misfit(error, module)}") from error
        return module

    def _discovered(self) -> tuple[tuple[PluginInfo, ...], tuple[BrokenPackage, ...]]:
        if self._found is None:
            self._found = discover()
        return self._found

    def _class(self, group: Group, name: str) -> type[Any]:
        key = (group, name)
        if key not in self._classes:
            self._classes[key] = self._load_class(group, name)
        return self._classes[key]

    def _load_class(self, group: Group, name: str) -> type[Any]:
        role = ROLES[group]
        if is_class_path(name):
            return role.check(load_class(name), repr(name))
        info = self.find(group, name)
        module = self.load(info)
        given: list[object] = []
        for result in self._call(module, role.hook, info):
            given.extend(result if isinstance(result, list | tuple) else [result])
        named = [c for c in given if info.name in (getattr(c, "name", None), *getattr(c, "aliases", ()))]
        if len(named) == 1:
            return role.check(named[0], str(info))
        for candidate in given:
            role.check(
                candidate, str(info)
            )  # the problem with a class is a better explanation than a name mismatch
        listed = ", ".join(
            f"{getattr(c, '__qualname__', c)} (name {getattr(c, 'name', None)!r})" for c in given
        )
        problem = "several classes have" if named else "no class has"
        raise PluginError(
            f"{info}: {problem} the name or alias {info.name!r} among what {role.hook} in {info.module} "
            f"returns: {listed or 'nothing'}"
        )

    def _call(self, module: ModuleType, hook: str, info: PluginInfo, **arguments: Any) -> list[Any]:
        others = [plugin for plugin in self._manager.get_plugins() if plugin is not module]
        caller = self._manager.subset_hook_caller(hook, remove_plugins=others)
        if not caller.get_hookimpls():
            undecorated = f"; mark {hook} with @specdec.hookimpl" if hasattr(module, hook) else ""
            raise PluginError(f"{info}: module {info.module} does not implement {hook}{undecorated}")
        try:
            results: list[Any] = caller(**arguments)
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise PluginError(f"{info}: {hook} in {info.module} raised {described(error)}") from error
        return results

    def _misfit(self, error: pluggy.PluginValidationError, module: ModuleType) -> str:
        known = [name for name in vars(hooks) if name.startswith("specdec_")]
        for name in vars(module):
            if self._manager.parse_hookimpl_opts(module, name) and name not in known:
                nearest = get_close_matches(name, known, n=1)
                hint = f"did you mean {nearest[0]!r}?" if nearest else f"the hooks are {', '.join(known)}"
                return f"{module.__name__} implements an unknown hook {name!r}; {hint}"
        return described(error)
