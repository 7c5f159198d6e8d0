-- claim_failed_start_task: claim a failed start task, to remove its conversation and sandbox.
-- Removes an id without a failed start task from the queue.
-- KEYS  root of the start tasks
-- ARGV  span:int µs after which another driver may claim it
-- Returns  hash | missing: there is none
-- Cost  O(log s): s failed start tasks
-- Idempotent  no: a repeat claims another one; the first is claimed again when its time has passed
-- include: _start_task.lua
for _, id in ipairs(redis.call('ZRANGEBYSCORE', root .. ':failed', '-inf', now, 'LIMIT', 0, 100)) do
  if field(id, 'status') == 'ERROR' then
    redis.call('ZADD', root .. ':failed', now + span, id)
    return redis.call('HGETALL', root .. ':task:' .. id)
  end
  redis.call('ZREM', root .. ':failed', id)
end
return false
