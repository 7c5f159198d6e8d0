-- claim_failed_start_task: take a failed start task, to remove its conversation and sandbox. An id without a failed start
-- task leaves the queue.
-- KEYS  root of the start tasks
-- ARGV  span:int µs after which another driver may take it
-- Returns  hash | missing: there is none
-- Cost  O(log s): s failed start tasks
-- Idempotent  no: a repeat claims another one; the first is claimed again when its time is over
-- include: _start_task.lua
for _, id in ipairs(redis.call('ZRANGEBYSCORE', root .. ':failed', '-inf', now, 'LIMIT', 0, 100)) do
  if field(id, 'status') == 'ERROR' then
    redis.call('ZADD', root .. ':failed', now + span, id)
    return redis.call('HGETALL', root .. ':task:' .. id)
  end
  redis.call('ZREM', root .. ':failed', id)
end
return false
