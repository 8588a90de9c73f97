"""What the chat refuses, in sentences for its user.

SoukError
`-- ChatError            400
    |-- ChatNotFound     404
    |-- TooManyAnswers   503  this process writes as many as it may
    |-- AnswerInProgress 409  one answer at a time in a chat
    |-- ChatFull         400
    |-- TooManyChats     400
    |-- BadSetting       400
    |-- NoModel          400  none is chosen, or it cannot be called any more
    |-- NothingToLearn   400  a dataset without an answer
    `-- NotAllowedHere   403  the role in the organisation does not include it
"""

from __future__ import annotations

from marketplace.foundation.errors import SoukError


class ChatError(SoukError):
    message = "The chat cannot do this."
    code = "chat_refused"
    status = 400


class ChatNotFound(ChatError):
    message = "There is no such chat, or it is not yours."
    code = "chat_not_found"
    status = 404


class TooManyAnswers(ChatError):
    message = "Too many answers are being written at the moment. Please try again in a few seconds."
    code = "too_many_answers"
    status = 503


class AnswerInProgress(ChatError):
    message = "The model is still answering in this chat. Wait for it, or stop it first."
    code = "answer_in_progress"
    status = 409


class ChatFull(ChatError):
    message = "This chat has {count} messages, which is the most. Please begin a new one."
    code = "chat_full"


class TooManyChats(ChatError):
    message = "You have {count} chats, which is the most. Delete one that you no longer need."
    code = "too_many_chats"


class BadSetting(ChatError):
    message = "{what} must be {expected}."
    code = "bad_setting"


class NoModel(ChatError):
    message = "This chat's model cannot be called: it has ended, or is no longer open to you. Choose another one."
    code = "no_model"


class NothingToLearn(ChatError):
    message = "None of these chats holds an answer to learn from. Choose others, or put answers back that are left out."
    code = "nothing_to_learn"


class NotAllowedHere(ChatError):
    message = "Your role in this organisation does not include calling models. An owner of it can change that."
    code = "not_allowed"
    status = 403
