// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title A rebasing token: balances are shares times a factor that anybody sets.
contract ScalingToken {
    uint256 public percent = 100;
    mapping(address account => uint256 amount) private _shares;
    mapping(address owner => mapping(address spender => uint256 amount)) public allowance;

    function mint(address to, uint256 amount) external {
        _shares[to] += (amount * 100) / percent;
    }

    function scale(uint256 percent_) external {
        percent = percent_;
    }

    function approve(address spender, uint256 amount) external returns (bool) {
        allowance[msg.sender][spender] = amount;
        return true;
    }

    function transfer(address to, uint256 amount) external returns (bool) {
        _move(msg.sender, to, amount);
        return true;
    }

    function transferFrom(address from, address to, uint256 amount) external returns (bool) {
        allowance[from][msg.sender] -= amount;
        _move(from, to, amount);
        return true;
    }

    function balanceOf(address account) public view returns (uint256) {
        return (_shares[account] * percent) / 100;
    }

    function _move(address from, address to, uint256 amount) private {
        uint256 shares = (amount * 100) / percent;
        _shares[from] -= shares;
        _shares[to] += shares;
    }
}
