-- _grants: the rights of people, and who of them has come.
-- include: _clock.lua

-- Also a Redis that was emptied gives no version that it gave before.
local function note_grants()
  local version = redis.call('GET', root .. ':grants_version')
  local later = version and tonumber(version) >= tonumber(now)
  redis.call('SET', root .. ':grants_version', later and string.format('%.0f', version + 1) or now)
end
