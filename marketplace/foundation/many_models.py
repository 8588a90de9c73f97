"""Models that a migration makes at once.

Django renders the models anew after each operation: with each new one all that are near it, which for sixty models is
seconds. Here it renders them once, after the last.
"""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations import CreateModel
from django.db.migrations.operations.base import Operation, OperationCategory


class CreateModels(Operation):
    """`CreateModel` of many. They may refer to each other in any order, in circles too."""

    category = OperationCategory.ADDITION

    def __init__(self, *models: CreateModel) -> None:
        self.models = models

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Without what was rendered: who looks at it next has it rendered with all of them."""
        vars(state).pop("apps", None)
        for each in self.models:
            each.state_forwards(app_label, state)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Their tables; foreign keys follow at the end of the migration, as everywhere."""
        for each in self.models:
            each.database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """In the other direction."""
        for each in reversed(self.models):
            each.database_backwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        """As `migrate` and `sqlmigrate` show it."""
        return f"Create models {', '.join(each.name for each in self.models)}"
