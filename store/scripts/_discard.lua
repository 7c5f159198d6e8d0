-- _discard: the end of a warm sandbox that nobody has used, and the backoff of its pool.
-- include: _sandbox.lua
local function discard(id)
  bind(id)
  if field(id, 'host') == '' or field(id, 'status') == 'MISSING' then
    remove(id, 'kept')
    return
  end
  close_keys(id)
  leave(id)
  note_change(id)
  signal(id)
end
