-- _access: the keys of access.
-- An expired key stays in the list, and is invalid.
-- include: _clock.lua

local function is_live(id)
  local expires = redis.call('HGET', root .. ':key:' .. id, 'expires_at')
  return expires and (expires == '' or tonumber(expires) > tonumber(now))
end

local function forget(id)
  redis.call('HDEL', root .. ':digests', redis.call('HGET', root .. ':key:' .. id, 'digest') or '')
  redis.call('DEL', root .. ':key:' .. id)
  redis.call('ZREM', root .. ':created', id)
end
