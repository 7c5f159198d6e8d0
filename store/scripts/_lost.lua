-- _lost: the work of lost supervisors, which every reader of sandboxes does. Included after _sandbox.lua. A warm sandbox is
-- removed instead of marked: its pool is filled again elsewhere.
-- Marks the sandboxes of a host without a heartbeat for host_span µs MISSING, and a sandbox that no host claimed for
-- start_span µs as failed.
local function look_after_the_lost(host_span, start_span)
  for _, lost in ipairs(redis.call('ZRANGEBYSCORE', root .. ':hosts', '-inf', now - host_span)) do
    for _, id in ipairs(redis.call('SMEMBERS', root .. ':host:' .. lost)) do
      local status = field(id, 'status')
      if field(id, 'wanted') == 'deleted' or is_warm(id) then
        remove(id, 'kept')
      elseif status and SEEN[status].MISSING then
        set_status(id, 'MISSING')
        redis.call('HSET', root .. ':box:' .. id, 'detail', 'Its host ' .. lost .. ', which has its files, does not answer')
      end
    end
    redis.call('ZREM', root .. ':hosts', lost)
    redis.call('HDEL', root .. ':supervisors', lost)
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', root .. ':unclaimed', '-inf', now - start_span)) do
    redis.call('ZREM', root .. ':unclaimed', id)
    if is_warm(id) then
      remove(id)
    elseif field(id, 'status') then
      set_status(id, 'ERROR')
      redis.call('HSET', root .. ':box:' .. id, 'detail', 'No supervisor has taken it: none runs, or all are busy')
    end
  end
end
