-- close_transfer: note how one side ended a stream, unless it has done so already. What was not received goes with it.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 ms that it is kept without a call   3 the side, `sent` or `received`   4 how it ended
-- Returns  {how the sender ended it | false, how the receiver did | false} | false: there is no such stream
-- Cost  O(c): c chunks that are left
-- Idempotent  the first call of a side counts
-- Kept  not proven: neither the file of Redis nor its replicas get a chunk
-- include: _transfer.lua
if not keep(ARGV[2]) then return false end
redis.call('HSETNX', root .. ':transfer:' .. id, ARGV[3], ARGV[4])
if state('received') then redis.call('UNLINK', root .. ':chunks:' .. id) end
return {state('sent'), state('received')}
