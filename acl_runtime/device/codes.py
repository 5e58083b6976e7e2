"""AscendCL's return codes, as far as this device gives them, and the exception that carries one."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """1xxxxx: the caller's mistake; 2xxxxx: a resource; 5xxxxx: inside. x07: runtime, x45: model executor."""

    SUCCESS = 0

    INVALID_PARAM = 100000
    REPEAT_INITIALIZE = 100002
    INVALID_FILE = 100003
    PARSE_FILE = 100006
    REPEAT_FINALIZE = 100037
    RELATIVE_RESOURCE_NOT_CLEARED = 148051
    UNSUPPORTED_JPEG = 148052
    API_NOT_SUPPORT = 200001
    MEMORY_ADDRESS_UNALIGNED = 200003
    INTERNAL_ERROR = 500000

    PARAM_INVALID = 107000
    INVALID_DEVICEID = 107001
    CONTEXT_NULL = 107002
    STREAM_CONTEXT = 107003
    EVENT_TIMESTAMP_INVALID = 107006
    EVENT_TIMESTAMP_REVERSAL = 107007
    ADDR_UNALIGNED = 107008
    STREAM_SUBSCRIBE = 107011
    THREAD_SUBSCRIBE = 107012
    STREAM_NO_CB_REG = 107015
    FEATURE_NOT_SUPPORT = 207000
    MEMORY_ALLOCATION = 207001
    MEMORY_FREE = 207002
    RT_INTERNAL_ERROR = 507000
    EVENT_NOT_COMPLETE = 507006
    MODEL_EXECUTE = 507011
    REPORT_TIMEOUT = 507012
    STREAM_SYNC_TIMEOUT = 507046
    EVENT_SYNC_TIMEOUT = 507047

    EXEC_PARAM_INVALID = 145000
    EXEC_NOT_INIT = 145001
    EXEC_MODEL_PATH_INVALID = 145002
    EXEC_MODEL_ID_INVALID = 145003
    EXEC_MODEL_DATA_SIZE_INVALID = 145006
    DYNAMIC_BATCH_SIZE_INVALID = 145013
    SHAPE_INVALID = 145021
    DATATYPE_INVALID = 145022
    EXEC_MEMORY_ALLOCATION = 245000
    EXEC_LOAD_MODEL = 545001


class DeviceError(Exception):
    """A call that fails with `code`; the message is for `acl.get_recent_err_msg`."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
